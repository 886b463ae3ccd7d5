"""Gradients and curvature of the loss of one batch."""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import TypedDict
from typing import Unpack

import keras
import tensorflow as tf

from keras_bdl._aliases import Data
from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl.curvature._captured_pass import CapturedPass
from keras_bdl.curvature._rule import WeightMatrix

# Autograph would rewrite this ordinary Python.
_plain_python = tf.autograph.experimental.do_not_convert


class PassOptions(TypedDict, total=False):
    """Options of the forward pass for gradients and curvature of a batch.

    Args:
        training: Whether the model runs with `training=True`. Defaults to
            `True`.
        loss: Loss as in `compile`, in place of the loss of the model. Defaults
            to `None`.
        fallback: What to do with layers that have no rule. `True`
            differentiates them separately for each example, which is slow and
            takes memory. `"auto"` does so for small layers, with a warning, and
            raises an error for large ones. `False` raises an error. Defaults to
            `"auto"`.
    """

    training: bool
    loss: Loss | None
    fallback: bool | str


@_plain_python
def second_moments(
    model: keras.Model,
    data: Data,
    *,
    observations: str = EXAMPLES,
    **options: Unpack[PassOptions],
) -> tuple[list, list]:
    """Returns the mean gradient and the mean squared per-example gradient.

    Use this function to measure gradient noise or a diagonal curvature. Both
    results cost about one ordinary backward pass. With g_i the gradient of the
    loss of example i of n and omega_i its weight,

        gradients = (1/n) sum_i omega_i g_i + d(penalties)/dw             (1)
        squares = (1/n) sum_i omega_i g_i^2                               (2)

    where g_i is summed over all positions, time steps and calls of a layer
    before it is squared. Penalties (regularizers and other `model.losses`) are
    in (1) and not in (2). In training, BatchNorm makes the examples depend on
    each other. g_i is then the part of the loss gradient that passes through
    the layer outputs for example i. The weights, BatchNorm statistics and seeds
    of the model do not change. Optimizers call
    `keras_bdl.extend.curvature_step` instead.

    Args:
        model: A built Keras model, compiled unless `loss` is given. The loss
            must be the mean over the batch, the default of Keras.
        data: One batch, `(x, y)` or `(x, y, sample_weight)`. One weight per
            example is omega_i. Weights of any other shape, such as one per
            position or output, only multiply terms inside the loss of an
            example; omega_i is then 1.
        observations: `"examples"` for (2). With `"positions"`, each value of
            the loss is an observation, such as each token: with v values in the
            batch and L_i the sum of those of example i, the squares are
            `(1/v) sum_i omega_i (dL_i/dw)^2`. Defaults to `"examples"`.
        **options: `training`, `loss` and `fallback`, see `PassOptions`.

    Returns:
        Two lists of tensors, `gradients` and `squares`, in the order of
        `model.trainable_variables`.

    Example:

    ```python
    gradients, squares = bdl.curvature.second_moments(model, (x, y))
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), section 3. The paper squares
          gradients of a convolution position by position, which gives other
          values.
    """
    run = _pure_pass(model, data, observations=observations, **options)
    return run.gradients_and_squares()


@_plain_python
def kronecker_factors(
    model: keras.Model,
    data: Data,
    *,
    observations: str = EXAMPLES,
    **options: Unpack[PassOptions],
) -> list[WeightMatrix]:
    """Returns the Kronecker factors of the weights that are matrices.

    Use this function for a curvature with correlations within a layer. The
    matrices are the weights of `Dense`, of convolutions without groups, and of
    `EinsumDense` whose kernel is a matrix, as in `MultiHeadAttention`. The
    factors approximate the empirical Fisher information, whose diagonal is the
    mean squares of `second_moments`. If you draw the targets `y` from the
    predictions of the model, the factors approximate the Fisher information.

    Args:
        model: A built Keras model, compiled unless `loss` is given. The loss
            must be the mean over the batch, the default of Keras.
        data: One batch, `(x, y)` or `(x, y, sample_weight)`, see
            `second_moments`.
        observations: `"examples"` or `"positions"`, see `second_moments`.
            Defaults to `"examples"`.
        **options: `training`, `loss` and `fallback`, see `PassOptions`.

    Returns:
        A list of objects, one for each matrix, with the attributes `kernel` and
        `bias`, the variables of a layer, `inputs` and `outputs`, the factors.
        Other weights have no factors; `second_moments` covers them.

    Example:

    ```python
    for matrix in bdl.curvature.kronecker_factors(model, (x, y)):
        print(matrix.kernel.path, matrix.inputs.shape, matrix.outputs.shape)
    ```

    Reference:
        - Martens and Grosse, [Optimizing Neural Networks with
          Kronecker-factored Approximate Curvature](
          https://arxiv.org/abs/1503.05671)
        - Grosse and Martens, [A Kronecker-factored approximate Fisher matrix
          for convolution layers](https://arxiv.org/abs/1602.01407)
    """
    run = _pure_pass(model, data, observations=observations, **options)
    _, cotangents = run.gradients_and_cotangents()
    return run.squares_and_factors(cotangents, run.mean_omega())[1]


@_plain_python
def per_example_gradients(
    model: keras.Model, data: Data, **options: Unpack[PassOptions]
) -> list:
    """Returns the gradient of each example's loss.

    Use this function for small models and batches: the result needs memory for
    the number of examples times the number of weights. If mean squares are
    enough, use `second_moments`.

    Args:
        model: A built Keras model, compiled unless `loss` is given. The loss
            must be the mean over the batch, the default of Keras.
        data: One batch, `(x, y)` or `(x, y, sample_weight)`. The weights
            multiply the loss of each example.
        **options: `training`, `loss` and `fallback`, see `PassOptions`.

    Returns:
        A list of tensors in the order of `model.trainable_variables`. The first
        axis of a tensor is the examples. The mean over this axis is the
        gradient of the loss without penalties.

    Example:

    ```python
    rows = bdl.curvature.per_example_gradients(model, (x, y))
    ```
    """
    return _pure_pass(model, data, **options).per_example()


def _pure_pass(model: keras.Model, data: Data, **options: Any) -> CapturedPass:
    """Returns a pass with the current weights, which changes no variable."""
    data = keras.tree.map_structure(
        lambda t: None if t is None else tf.convert_to_tensor(t),
        keras.utils.unpack_x_y_sample_weight(data),
    )
    return CapturedPass(model, data, pure=True, **options)


@dataclasses.dataclass
class CurvatureStep:
    """Result of `curvature_step`.

    Attributes:
        loss: The loss that `model.compute_loss` returns on this replica,
            already divided by the number of replicas.
        y_pred: The outputs of the model.
        gradients: Mean gradients, in the order of `model.trainable_variables`.
        squares: Mean squares of per-example gradients, in the same order;
            `None` for a variable of `factors`.
        factors: What `keras_bdl.curvature.kronecker_factors` returns; empty
            with `statistics="squares"`.
    """

    loss: Any
    y_pred: Any
    gradients: list
    squares: list
    factors: list[WeightMatrix]


@_plain_python
def curvature_step(
    model: keras.Model,
    data: Data,
    *,
    values: list | None = None,
    loss_scale: Any = None,
    statistics: str = "squares",
    due: Any = None,
    observations: str = EXAMPLES,
    counts_labels: bool = False,
    max_factor_size: int | None = None,
    **options: Unpack[PassOptions],
) -> CurvatureStep:
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
    that passes through the layer outputs for example i.

    On R replicas with n examples each, (1) and (2) are the shares of this
    replica in the mean over all R n examples: all-reduce both lists by the
    *sum*, as Keras does with gradients. For several posterior samples, call
    this function once per sample and average the results.

    During the call, the function replaces `call` and `activation` of the
    layers. On return, the layers are as before. BatchNorm statistics, seeds and
    the metrics of losses are updated as in an ordinary step. All other
    variables keep their values, including those that `values` replaces.

    Args:
        model: A built Keras model, compiled unless `loss` is given.
        data: A batch, `(x, y)` or `(x, y, sample_weight)`, as tensors. One
            weight per example is omega_i. Weights of any other shape, such as
            one per position or output, only multiply terms inside l_i; omega_i
            is then 1.
        values: Tensors in place of `model.trainable_variables`, such as a
            posterior sample. Defaults to `None`: the variables.
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
        **options: `training`, `loss` and `fallback`, see `PassOptions` in the
            same file: the mode of the model, another loss, and what to do with
            layers that have no rule.

    Returns:
        A `CurvatureStep`. Gradients and curvature are in float32 or higher
        precision.

    Example:

    ```python
    found = keras_bdl.extend.curvature_step(model, (x, y))
    print(found.gradients[0].shape, found.squares[0].shape)
    ```
    """
    check_choice("statistics", statistics, ("squares", "factors"))
    if max_factor_size is not None:
        check_count("max_factor_size", max_factor_size)
    run = CapturedPass(
        model,
        keras.utils.unpack_x_y_sample_weight(data),
        values=values,
        loss_scale=loss_scale,
        observations=observations,
        counts_labels=counts_labels,
        max_factor_size=max_factor_size,
        **options,
    )
    if statistics == "factors":
        # Outside of `tf.cond`. In a branch, replicas cannot communicate, and
        # the gradients of some layers, such as `MaxPooling2D`, are slower.
        gradients, cotangents = run.gradients_and_cotangents()
        mean_omega = run.mean_omega()

    def plain() -> list:
        return gradients if statistics == "factors" else run.gradients()

    def with_curvature() -> tuple:
        if statistics == "factors":
            return gradients, *run.squares_and_factors(cotangents, mean_omega)
        return *run.gradients_and_squares(), []

    found = (
        with_curvature() if due is None else _when(due, with_curvature, plain)
    )
    return CurvatureStep(run.loss, run.y_pred, *found)


def _when(due: Any, with_curvature: Callable, gradients: Callable) -> tuple:
    """Returns `with_curvature()` if `due`, else `gradients()` and zeros."""
    found: dict[str, Any] = {}

    # A branch of `tf.cond` returns only tensors. The dict keeps the rest.
    def tensors_of(gradients: list, squares: list, factors: list) -> tuple:
        found["factors"] = factors
        found["none"] = [h is None for h in squares]
        matrices = [(f.inputs, f.outputs) for f in factors]
        return gradients, [h for h in squares if h is not None], matrices

    def curved() -> tuple:
        found["tensors"] = tensors_of(*with_curvature())
        return found["tensors"]

    def plain() -> tuple:
        _, *curvature = found["tensors"] if "tensors" in found else curved()
        zeros = keras.tree.map_structure(
            lambda t: tf.zeros(t.shape, t.dtype), curvature
        )
        return gradients(), *zeros

    of_batch, squares, matrices = tf.cond(due, curved, plain)
    squares = iter(squares)
    return (
        of_batch,
        [None if none else next(squares) for none in found["none"]],
        [
            dataclasses.replace(f, inputs=a, outputs=s)
            for f, (a, s) in zip(found["factors"], matrices, strict=True)
        ],
    )
