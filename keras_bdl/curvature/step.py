"""Loss, gradients and curvature of one batch, inside of a training step."""

import dataclasses

import keras
import tensorflow as tf

from keras_bdl.curvature.captured_pass import CapturedPass
from keras_bdl.curvature.factors import KroneckerFactors


@dataclasses.dataclass
class Step:
    """What `step` returns.

    Attributes:
        loss: The loss, as `model.compute_loss` returns it: on R replicas, the
            share of this one.
        y_pred: The outputs of the model.
        gradients: Mean gradients, in the order of `model.trainable_variables`.
        squares: Mean squares of per-example gradients, in this order; `None`
            for a variable that `factors` are of.
        factors: A list of `KroneckerFactors`; empty unless asked for.
    """

    loss: object
    y_pred: object
    gradients: list
    squares: list
    factors: list[KroneckerFactors]


# What is run here is ordinary Python.
@tf.autograph.experimental.do_not_convert
def step(
    model,
    x,
    y,
    sample_weight=None,
    *,
    values=None,
    training=True,
    loss=None,
    loss_scale=None,
    statistics: str = "squares",
    due=None,
    fallback: bool = False,
):
    """Runs a model forward and backward and returns gradients and curvature.

    This is for optimizers and is to be called where `train_step` is: in the
    graph, in a replica, or eagerly. For n examples with weights omega_i
    (ones, without `sample_weight`) and losses l_i of the data,

        g_i = dl_i/dw
        gradient = (1/n) sum_i omega_i g_i + d(penalties)/dw              (1)
        squares = (1/n) sum_i omega_i g_i^2                               (2)

    where the penalties, `model.losses`, are regularizers, activity
    regularizers and whatever layers `add_loss`. Where examples meet, as in
    BatchNorm in training, g_i is the part of the gradient that goes through
    the weights as example i uses them. With Kronecker factors see
    `KroneckerFactors`.

    On R replicas with n examples each, (1) and (2) are the shares of this
    one in the mean over all R n: both lists are to be all-reduced by the
    *sum*, as Keras does with gradients. Draws of weights are averaged by the
    caller: call `step` once for each.

    The first call is a trace, in which the layers are looked into; they are
    as before when it returns. BatchNorm statistics, seeds and the metrics of
    losses are assigned as in an ordinary step. Nothing else is: the variables
    keep their values whatever `values` are.

    Args:
        model: A built Keras model, compiled unless `loss` is given.
        x: A batch of inputs.
        y: The targets.
        sample_weight: As Keras has it. One number an example is omega_i; any
            other, such as a weight for each position or output, is a part of
            l_i. Defaults to `None`.
        values: Tensors that stand for `model.trainable_variables`, such as a
            draw. Defaults to `None`, the variables themselves.
        training: Passed to the model. Defaults to `True`.
        loss: Instead of the model's own. Defaults to `None`.
        loss_scale: A number that the loss is multiplied by before the
            backward pass, as `LossScaleOptimizer.dynamic_scale`, for half
            precision. All that is returned is divided by it: gradients once,
            squares twice. Defaults to `None`.
        statistics: `"squares"`; or `"factors"`, which gives Kronecker factors
            for the weights that are matrices and squares for others.
        due: A boolean tensor. Where it is false, the gradients are those of
            an ordinary step, at its price, and the curvature is zeros, to be
            left out by the caller. Defaults to `None`, always.
        fallback: Whether layers without a rule are differentiated example by
            example. Defaults to `False`, where they are an error.

    Returns:
        A `Step`; its curvature is at least in float32, as are gradients.
    """
    if statistics not in ("squares", "factors"):
        raise ValueError(
            '`statistics` must be "squares" or "factors". '
            f"Received: statistics={statistics!r}"
        )
    run = CapturedPass(
        model, x, y, sample_weight, values, training, loss, loss_scale, fallback
    )

    if statistics == "factors":
        mean_omega = run.mean_omega()

    def with_curvature():
        if statistics == "squares":
            return *run.gradients_and_squares(), []
        return run.gradients(), *run.factors_and_squares(mean_omega)

    if due is None:
        gradients, squares, factors = with_curvature()
    else:
        gradients, squares, factors = _when(due, with_curvature, run.gradients)
    return Step(run.loss, run.y_pred, gradients, squares, factors)


def _when(due, with_curvature, gradients):
    """Returns `with_curvature()`, or if not due `gradients()` and zeros."""
    found = {}

    # Outside of the graph of the branch, there are no tensors in it.
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
