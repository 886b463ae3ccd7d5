"""Estimates of the diagonal of the Hessian, for `TaylorVI`."""

import math
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import check_number
from keras_bdl._backend import num_replicas
from keras_bdl._backend import vjp
from keras_bdl._random._noise import TRAINING
from keras_bdl._random._noise import random_bits
from keras_bdl._random._noise import split_numbers
from keras_bdl._random._seeds import NoiseSeed
from keras_bdl._replaced_in_thread import replaced
from keras_bdl.curvature._capture import check_fallback
from keras_bdl.curvature._captured_pass import CapturedPass


class HessianDiagonal(ShowsArguments):
    """Base of the estimates of the diagonal of a Hessian.

    Derive from this class for a new estimate. `TaylorVI` calls the estimate
    under a gradient tape and differentiates the result, so every operation
    must have a gradient.
    """

    # Whether the estimate of a batch differs from the mean of the estimates of
    # its halves.
    depends_on_group = False

    def __call__(self, forward: Any, values: list) -> tuple[Any, list]:
        """Returns the outcome of a batch and the second derivatives of `nll`.

        `forward` is a function of `values`, tensors for
        `model.trainable_variables`. It returns an object with the mean negative
        log-likelihood `nll`. `forward.with_gradient` returns that object and
        the gradient of `nll`. Attributes are `examples`, a number, and `model`.
        """
        raise NotImplementedError

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        return {}

    @classmethod
    def from_config(cls, config: dict) -> "HessianDiagonal":
        """Returns the estimate that `get_config` described."""
        return cls(**config)


def get(estimate: HessianDiagonal | dict) -> HessianDiagonal:
    """Returns a `HessianDiagonal`, made from a config if necessary."""
    if isinstance(estimate, dict):
        estimate = keras.saving.deserialize_keras_object(estimate)
    if not isinstance(estimate, HessianDiagonal):
        raise ValueError(
            "`hessian_diagonal` must be `None` or an estimate of "
            "`keras_bdl.objectives`, such as `SquaredGradient()`. "
            f"Received: hessian_diagonal={estimate!r}"
        )
    return estimate


@keras.saving.register_keras_serializable(package="keras_bdl")
class SquaredGradient(HessianDiagonal):
    """Estimates the Hessian diagonal by the squared mean gradient.

    This estimate is the cheapest one and the default of `TaylorVI`,

        h = S g^2                                                         (1)

    with g the gradient of the mean negative log-likelihood of S examples, and
    g_i the gradient of example i. On average over minibatches, (1) is the sum
    of two terms: the empirical Fisher information, which is the mean of g_i^2,
    and `(S - 1)` times the square of the mean of g_i. The second term vanishes
    where the gradients of the examples average out. With
    `compile(observations="positions")`, S and the g_i are those of positions.

    Example:

    ```python
    estimate = keras_bdl.extend.SquaredGradient()
    objective = keras_bdl.objectives.TaylorVI(
        "diagonal", hessian_diagonal=estimate
    )
    model.compile("adam", loss, objective=objective)
    model.fit(x, y, verbose=0)
    ```

    Reference:
        - Unlu and Aitchison, [Gradient Regularisation as Approximate
          Variational Inference](https://arxiv.org/abs/2011.10443), eq. 10
    """

    depends_on_group = True

    def __call__(self, forward: Any, values: list) -> tuple[Any, list]:
        """Returns the outcome of a batch, and (1)."""
        outcome, gradients = forward.with_gradient(values)
        size = ops.cast(forward.observations(outcome.y_pred), "float32")
        return outcome, [
            ops.cast(size, g.dtype) * ops.square(g)  # (1)
            for g in gradients
        ]


@keras.saving.register_keras_serializable(package="keras_bdl")
class PerExampleFisher(HessianDiagonal):
    """Estimates the Hessian diagonal by the empirical Fisher information.

    Use this estimate if gradients of single examples do not average out,

        h = (1/n) sum_i g_i^2                                             (1)

    with g_i the gradient of the loss of example i. With
    `compile(observations="positions")`, (1) is (3) of
    `keras_bdl.extend.curvature_step`. All n gradients are
    computed at once, as in `keras_bdl.curvature.second_moments`. A
    `sample_weight` multiplies g_i^2, as if the example occurred that many
    times. Without `sample_weight` and BatchNorm, (1) equals `SquaredGradient`
    with `gradient_batch_size=1`.

    Args:
        fallback: What to do with layers that have no rule. `True`
            differentiates them separately for each example, which is slow and
            takes memory. `"auto"` does so for small layers, with a warning, and
            raises an error for large ones. `False` raises an error. Defaults to
            `"auto"`.

    Example:

    ```python
    hessian = keras_bdl.objectives.PerExampleFisher()
    keras_bdl.objectives.TaylorVI("diagonal", hessian_diagonal=hessian)
    ```
    """

    def __init__(self, fallback: bool | str = "auto"):
        self.fallback = check_fallback(fallback)

    def __call__(self, forward: Any, values: list) -> tuple[Any, list]:
        """Returns the outcome of a batch, and (1)."""
        x, y, sample_weight = forward.data
        run = CapturedPass(
            forward.model,
            (x, y, sample_weight),
            values=values,
            loss_scale=forward.gradient_scale,
            fallback=self.fallback,
            observations=forward.model.observations,
            counts_labels=True,
        )
        _, shares = run.gradients_and_squares()
        # `shares` are parts of the mean over all replicas, but (1) is the mean
        # of this replica alone.
        squares = [num_replicas() * share for share in shares]  # (1)
        return forward.outcome(run.loss, run.y_pred, run.penalties), squares

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        return {"fallback": self.fallback}


@keras.saving.register_keras_serializable(package="keras_bdl")
class Hutchinson(NoiseSeed, HessianDiagonal):
    """Estimates the diagonal of the Hessian H by random signs.

    Use this estimate for a convex loss or for small variances,

        h = z * (H z),   z_i = -1 or 1 with equal probability             (1)

    The expectation of (1) is the diagonal, for any noise of the data.
    Where H is not positive, the estimate is negative, and training moves the
    weights to regions where the Hessian of a network is most negative. The
    gradient needs third derivatives: a step takes four times as long as with
    `SquaredGradient`.

    Args:
        probes: Number of random vectors z, whose estimates are averaged.
            Defaults to `1`.
        seed: Seed of the signs. Defaults to `None`: a seed drawn when the
            object is made, which depends on `keras.utils.set_random_seed`.
            The config holds the drawn number.

    Example:

    ```python
    hessian = keras_bdl.objectives.Hutchinson(probes=2)
    keras_bdl.objectives.TaylorVI("diagonal", hessian_diagonal=hessian)
    ```
    """

    def __init__(self, probes: int = 1, *, seed: int | None = None):
        check_number("probes", probes, at_least=1, integer=True)
        self.choose_seed(seed)
        self.probes = probes

    def __call__(self, forward: Any, values: list) -> tuple[Any, list]:
        """Returns the outcome of a batch, and (1)."""

        def gradient() -> tuple[list, Any]:
            outcome, gradients = forward.with_gradient(values)
            return gradients, outcome

        product_with, outcome = vjp(gradient, values)
        diagonals = []
        for probe in range(self.probes):
            z = [
                ops.cast(signs, v.dtype)
                for signs, v in zip(
                    self._signs(forward, probe), values, strict=True
                )
            ]
            products = zip(z, product_with(z), strict=True)
            diagonals.append([one * column for one, column in products])  # (1)
        return outcome, [
            sum(of_variable[1:], start=of_variable[0]) / self.probes
            for of_variable in zip(*diagonals, strict=True)
        ]

    def _signs(self, forward: Any, probe: int) -> list:
        shapes = [v.shape for v in forward.variables]
        sizes = [math.prod(shape) for shape in shapes]
        bits = random_bits(
            sum(sizes),
            seed=self.noise_seed(),
            stream=TRAINING,
            draw=probe,
            step=forward.model.optimizer.iterations,
        )
        return split_numbers(
            ops.cast(1 - 2 * ops.bitwise_and(bits, 1), "float32"), shapes
        )

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        return {"probes": self.probes, "seed": self.seed}


def exact_moments() -> AbstractContextManager[None]:
    """Returns a context with exact second derivatives of `tf.nn.moments`.

    In the variance, `tf.nn.moments` treats the mean as a constant. The gradient
    is still right, since the deviations from the mean add up to zero. The
    gradient of the gradient is wrong, also in the Keras layers
    `BatchNormalization`, `GroupNormalization` and `LayerNormalization`.

    Inside the context, this thread calls a replacement with the same values,
    the same gradient, and the exact gradient of the gradient. Other threads
    call `tf.nn.moments`.
    """
    return replaced(tf.nn, "moments", _moments)


def _moments(
    original: Any,
    x: Any,
    axes: Any,
    shift: Any = None,
    keepdims: bool = False,
    name: str | None = None,
) -> tuple:
    """Returns mean and variance, as `tf.nn.moments`."""
    del original
    del shift  # is not used by the original either
    with tf.name_scope(name or "moments"):
        short = x.dtype == tf.float16
        y = tf.cast(x, tf.float32) if short else x
        mean = tf.reduce_mean(y, axes, keepdims=True)
        # The variance is the same for any center. TensorFlow leaves out the
        # second term: it is zero here, but its second derivative is not.
        center = tf.stop_gradient(mean)
        squares = tf.math.squared_difference(y, center)
        variance = tf.reduce_mean(squares, axes, keepdims=True)
        variance -= tf.square(mean - center)
        if not keepdims:
            mean = tf.squeeze(mean, axes)
            variance = tf.squeeze(variance, axes)
        return (
            (tf.cast(mean, x.dtype), tf.cast(variance, x.dtype))
            if short
            else (mean, variance)
        )
