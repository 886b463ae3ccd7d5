"""Loss, gradients and curvature of one batch, inside of a training step."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl.curvature._captured_pass import CapturedPass
from keras_bdl.curvature._layer_factors import KroneckerFactors
from keras_bdl.curvature._plan import check_fallback


@dataclasses.dataclass
class Step:
    """Result of `step`.

    Attributes:
        loss: The loss that `model.compute_loss` returns on this replica,
            already divided by the number of replicas.
        y_pred: The outputs of the model.
        gradients: Mean gradients, in the order of `model.trainable_variables`.
        squares: Mean squares of per-example gradients, in the same order;
            `None` for a variable of `factors`.
        factors: A list of `KroneckerFactors`; empty with
            `statistics="squares"`.
    """

    loss: Any
    y_pred: Any
    gradients: list
    squares: list
    factors: list[KroneckerFactors]


# Autograph would rewrite this ordinary Python.
@tf.autograph.experimental.do_not_convert
def step(
    model: keras.Model,
    x: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    values: list | None = None,
    training: bool = True,
    loss: Loss | None = None,
    loss_scale: Any = None,
    statistics: str = "squares",
    due: tf.Tensor | None = None,
    fallback: bool | str = "auto",
    observations: str = EXAMPLES,
    counts_labels: bool = False,
    max_factor_size: int | None = None,
) -> Step:
    """Returns loss, outputs, gradients and curvature of one batch.

    Call this function in a `train_step`, inside the graph and the replica, or
    eagerly. `second_moments` returns (1) and (2) and changes no variable of the
    model. For n examples with weights omega_i (1 without `sample_weight`) and
    losses l_i of the data,

        g_i = dl_i/dw
        gradient = (1/n) sum_i omega_i g_i + d(penalties)/dw              (1)
        squares = (1/n) sum_i omega_i g_i^2                               (2)

    where the penalties, `model.losses`, are regularizers, activity regularizers
    and the losses that layers add with `add_loss`. If each position of an
    example is an observation, such as each token, the loss is the mean over all
    v positions of the batch. With L_i the sum over the positions of example i,

        squares = (1/v) sum_i omega_i (dL_i/dw)^2                         (3)

    In training, BatchNorm makes the examples depend on each other. The gradient
    of an example, in (2) and (3), is then the part of the loss gradient
    that passes through the layer outputs for example i. `KroneckerFactors` has
    the equations of the Kronecker factors.

    On R replicas with n examples each, (1) and (2) are the shares of this
    replica in the mean over all R n examples: all-reduce both lists by the
    *sum*, as Keras does with gradients. For several posterior samples, call
    `step` once per sample and average the results.

    During the call, the function replaces `call` and `activation` of the
    layers. On return, the layers are as before. BatchNorm statistics, seeds and
    the metrics of losses are updated as in an ordinary step. All other
    variables keep their values, including those that `values` replaces.

    Args:
        model: A built Keras model, compiled unless `loss` is given.
        x: A batch of inputs.
        y: The targets.
        sample_weight: Weights, as in Keras. One weight per example is omega_i.
            Weights of any other shape, such as one per position or output,
            only multiply terms inside l_i; omega_i is then 1. Defaults to
            `None`.
        values: Tensors in place of `model.trainable_variables`, such as a
            posterior sample. Defaults to `None`: the variables.
        training: Whether the model runs with `training=True`. Defaults to
            `True`.
        loss: Loss in place of the loss of the model. Defaults to `None`.
        loss_scale: Factor of the loss in the backward pass, as
            `LossScaleOptimizer.dynamic_scale`, for half precision. All results
            are divided by the factor: gradients once, squares twice. Defaults
            to `None`.
        statistics: `"squares"` for mean squares of all gradients, or
            `"factors"` for Kronecker factors of the weights that are matrices
            and mean squares of all others. Defaults to `"squares"`.
        due: A boolean tensor: whether to compute the curvature. If false, the
            step has the cost and the gradients of an ordinary step, and the
            curvature is zeros, which the caller must ignore. Defaults to
            `None`: always compute the curvature.
        fallback: What to do with layers that have no rule. `True`
            differentiates them separately for each example, which is slow and
            takes memory. `"auto"` does so for small layers, with a warning, and
            raises an error for large ones. `False` raises an error. Defaults to
            `"auto"`.
        observations: `"examples"` for (2), or `"positions"` for (3), where
            masked positions do not count. Defaults to `"examples"`.
        counts_labels: Whether each label of an example is an observation too.
            A binary cross-entropy of D labels is their mean, so l_i is 1/D of
            the negative log-likelihood of the example. The squares are then D
            times (2) or (3), and N D times the squares is the curvature of the
            data. Defaults to `False`.
        max_factor_size: With `statistics="factors"`, the longest side of a
            kernel, as a matrix, that gets factors. Larger kernels get mean
            squares. Defaults to `None`: no limit.

    Returns:
        A `Step`. Gradients and curvature are in float32 or higher precision.

    Example:

    ```python
    found = keras_bdl.extend.step(model, x, y)
    print(found.gradients[0].shape, found.squares[0].shape)
    ```
    """
    check_choice("statistics", statistics, ("squares", "factors"))
    if max_factor_size is not None:
        check_count("max_factor_size", max_factor_size)
    run = CapturedPass(
        model,
        (x, y, sample_weight),
        values=values,
        training=training,
        loss=loss,
        loss_scale=loss_scale,
        fallback=check_fallback(fallback),
        observations=observations,
        counts_labels=counts_labels,
        max_factor_size=max_factor_size,
    )

    if statistics == "factors":
        # Outside of `tf.cond`. In a branch, replicas cannot communicate, and
        # the gradients of some layers, such as `MaxPooling2D`, are slower.
        gradients, cotangents = run.gradients_and_cotangents()
        mean_omega = run.mean_omega()

        def plain():
            return gradients

        def with_curvature():
            return gradients, *run.squares_and_factors(cotangents, mean_omega)
    else:
        plain = run.gradients

        def with_curvature():
            return *run.gradients_and_squares(), []

    if due is None:
        gradients, squares, factors = with_curvature()
    else:
        gradients, squares, factors = _when(due, with_curvature, plain)
    return Step(run.loss, run.y_pred, gradients, squares, factors)


def _when(due, with_curvature, gradients):
    """Returns `with_curvature()` if `due`, else `gradients()` and zeros."""
    found: dict[str, Any] = {}

    # A branch of `tf.cond` returns only tensors. The dict keeps the rest.
    def tensors_of(gradients, squares, factors):
        found["factors"] = factors
        found["none"] = [h is None for h in squares]
        matrices = [(f.inputs, f.outputs) for f in factors]
        return gradients, [h for h in squares if h is not None], matrices

    def curved():
        found["tensors"] = tensors_of(*with_curvature())
        return found["tensors"]

    def plain():
        _, *curvature = found["tensors"] if "tensors" in found else curved()
        zeros = keras.tree.map_structure(
            lambda t: tf.zeros(t.shape, t.dtype), curvature
        )
        return gradients(), *zeros

    gradients, squares, matrices = tf.cond(due, curved, plain)
    squares = iter(squares)
    return (
        gradients,
        [None if none else next(squares) for none in found["none"]],
        [
            dataclasses.replace(f, inputs=a, outputs=s)
            for f, (a, s) in zip(found["factors"], matrices, strict=True)
        ],
    )
