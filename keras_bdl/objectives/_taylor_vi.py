"""Deterministic variational inference by a Taylor expansion."""

import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._aliases import PriorLike
from keras_bdl._random._seeds import NoiseSeed
from keras_bdl.objectives._gaussian_objective import GaussianObjective
from keras_bdl.objectives._hessian_diagonal import HessianDiagonal
from keras_bdl.objectives._hessian_diagonal import SquaredGradient
from keras_bdl.objectives._hessian_diagonal import exact_moments
from keras_bdl.objectives._hessian_diagonal import get
from keras_bdl.objectives._objective import BatchPass
from keras_bdl.objectives._objective import Outcome


@keras.saving.register_keras_serializable(package="keras_bdl")
class TaylorVI(GaussianObjective):
    """Variational inference without noise: a penalty on the gradient.

    Use TaylorVI for smooth networks (softplus, GELU, SiLU, tanh) where the
    noise of samples slows training.

    TaylorVI fits independent Gaussians `q = N(mu, sigma^2)` to the posterior
    of the weights. The means mu are the weights of an ordinary model. Training
    draws no samples. The loss is the evidence bound, expanded to second order
    around mu:

        loss = nll(mu) + 1/2 sum_i sigma_i^2 h_i + (tau / N) KL(q || p)   (1)

    with nll the mean negative log-likelihood, N the number of examples, p the
    prior and tau the temperature, which multiplies the KL alone. h estimates
    the diagonal of the Hessian of nll. The default estimate is

        h = S g^2,   g = gradient of nll of S examples                    (2)

    If all weights have the same variance `sigma^2 = eta / (2 S)`, the second
    term of (1) is `(eta / 4) ||g||^2`. This term is the implicit regularizer
    of stochastic gradient descent with the learning rate eta. For a prior
    `N(0, s^2)`, the best learned variances are

        1 / sigma_i^2 = 1 / s^2 + N h_i / tau                             (3)

    with h_i averaged over batches. (2) depends on S: `gradient_batch_size`
    fixes S for any batch size and any number of replicas. If a network fits
    all of its training data, h vanishes. By (3), the variances then grow to
    those of the prior, and mu predicts better than samples of q. A fixed
    variance with `learning_rate_equivalent` avoids this growth.

    The loss of the model must be the mean negative log-likelihood. In the
    logs, `nll` is the sum of the first two terms of (1), and `kl` is the KL
    divided by N. In evaluation, `nll` is the first term alone, at mu or at
    samples, and the loss adds `kl` without tau. To compare temperatures, use
    `val_loss` instead of `loss`. Any Keras optimizer without weight decay
    works. `compile(samples=...)` and `keras_bdl.predict` draw from q.

    The gradient of (1) is a second derivative of the model. The second
    derivative of piecewise linear activations, such as ReLU, is zero and
    carries no information; a warning names these layers. BatchNorm works: the
    gradient includes the statistics of the batch, and the weights of BatchNorm
    have neither prior nor variance. The moving statistics belong to mu, so
    pass the training data to `keras_bdl.predict` as `batch_norm_data`.

    Args:
        covariance: `"fixed"`: one given sigma for all weights; `"scalar"`: a
            learned sigma for each tensor, such as a kernel; `"diagonal"`: a
            learned sigma for each weight.
        stddev: sigma, or the initial value of a learned sigma. Defaults to
            `None`: the value that follows from `learning_rate_equivalent`, or
            else 0.03 if sigma is fixed and 0.01 if it is learned.
        hessian_diagonal: h: `SquaredGradient()`, `PerExampleFisher()`,
            `Hutchinson()` or another `keras_bdl.extend.HessianDiagonal`.
            Defaults to `None`: `SquaredGradient()`.
        learning_rate_equivalent: eta, in place of `stddev`:
            `sigma^2 = eta / (2 S)`. Needs `gradient_batch_size`. Defaults to
            `None`.
        gradient_batch_size: S. Each replica splits its part of a batch into
            groups of this size and processes one group after the other.
            Defaults to `None`: the part is one group, as in the paper.
        learning_rate_multiplier: Factor of the learning rate for the logarithm
            of a learned sigma. Defaults to `10.0`.
        prior: p, a prior of `keras_bdl.priors` with a known expectation under
            a Gaussian: `Normal`, `HeNormal` or `Laplace`, or a normal
            distribution of TensorFlow Probability. Defaults to `None`:
            `Normal(1.0)`. (Samplers take `None` for a flat prior.)
        temperature: tau, float or schedule. Defaults to `1.0`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            `keras_bdl.Model.fit` counts them.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables that have neither prior nor noise. Defaults to
            `("BatchNormalization",)`.
        seed: Seed of the samples in evaluation. Defaults to `None`: a seed
            drawn when the objective is made, which depends on
            `keras.utils.set_random_seed`. The config holds the drawn number.

    Example:

    ```python
    objective = keras_bdl.objectives.TaylorVI("diagonal", temperature=0.1)
    model.compile("adam", loss, objective=objective)
    model.fit(x, y, verbose=0)
    prediction = keras_bdl.predict(model, x_test, verbose=0)
    ```

    Reference:
        - Unlu and Aitchison, [Gradient Regularisation as Approximate
          Variational Inference](https://arxiv.org/abs/2011.10443), section 3
    """

    def __init__(
        self,
        covariance: str,
        stddev: float | None = None,
        *,
        hessian_diagonal: HessianDiagonal | None = None,
        learning_rate_equivalent: float | None = None,
        gradient_batch_size: int | None = None,
        learning_rate_multiplier: float = 10.0,
        seed: int | None = None,
        prior: PriorLike = None,
        temperature: FloatOrSchedule = 1.0,
        dataset_size: int | None = None,
        exclude_from_inference: str | Sequence[str] = ("BatchNormalization",),
    ):
        super().__init__(
            covariance,
            stddev,
            learning_rate_equivalent=learning_rate_equivalent,
            gradient_batch_size=gradient_batch_size,
            learning_rate_multiplier=learning_rate_multiplier,
            seed=seed,
            prior=prior,
            temperature=temperature,
            dataset_size=dataset_size,
            exclude_from_inference=exclude_from_inference,
        )
        if hessian_diagonal is None:
            hessian_diagonal = SquaredGradient()
        self.hessian_diagonal = get(hessian_diagonal)
        if not hasattr(self.prior, "expected_log_prob"):
            raise ValueError(_no_expectation(self.prior))
        if (
            self.gradient_batch_size is not None
            and self.learning_rate_equivalent is None
            and not self.hessian_diagonal.depends_on_group
        ):
            raise ValueError(
                "`gradient_batch_size` has no effect, since `hessian_diagonal` "
                "does not depend on it. Leave it out. Received: "
                f"gradient_batch_size={self.gradient_batch_size}, "
                f"hessian_diagonal={type(self.hessian_diagonal).__name__}"
            )
        self._warned = False

    def check(self, model: keras.Model, inferred: list) -> None:
        """Checks the model; warns of activations without second derivative."""
        super().check(model, inferred)
        if model.train_samples != 1:
            raise ValueError(
                "`TaylorVI` draws no samples in training. Compile without "
                f"`train_samples`. Received: train_samples="
                f"{model.train_samples}"
            )
        if not self._warned:
            self._warned = _warn_of_kinks(model)

    def gradients(
        self, forward: BatchPass, values: list, own: list
    ) -> tuple[list[Outcome], list]:
        """Returns the outcome and gradients of a batch: means over groups."""

        def of_group(part: BatchPass) -> tuple[Outcome, list]:
            outcomes, gradients = self._second_order(part, values, own)
            return outcomes[0], gradients

        size = self.gradient_batch_size
        if size is None or not self.hessian_diagonal.depends_on_group:
            outcome, gradients = of_group(forward)
        else:
            outcome, gradients = mean_over_groups(of_group, forward, size)
        return [outcome], gradients

    def _second_order(
        self, part: BatchPass, values: list, own: list
    ) -> tuple[list[Outcome], list]:
        try:
            return super().gradients(part, values, own)
        except LookupError as error:
            if isinstance(error, (KeyError, IndexError)):
                raise  # raised by a layer, not by TensorFlow's gradients
            raise ValueError(
                "`TaylorVI` needs the second derivative of every operation "
                "between the weights and the loss, and TensorFlow lacks one "
                "of them. Replace the layer that uses the operation, or "
                "train with `SampledVI`, which needs first derivatives only. "
                f"Received: {error}"
            ) from error

    def data_term(
        self, forward: BatchPass, values: list, own: list
    ) -> list[Outcome]:
        """Returns (1) without the KL."""
        with exact_moments():
            outcome, diagonal = self.hessian_diagonal(forward, values)
        stddevs = self.stddevs(own, len(forward.inferred))
        terms = []
        for i, stddev in zip(forward.inferred, stddevs, strict=True):
            # Layers may compute in half precision; this sum needs float32.
            h = ops.cast(diagonal[i], "float32")
            terms.append(ops.sum(ops.square(stddev) * h))
        return [outcome.plus(0.5 * ops.sum(ops.stack(terms)))]  # (1)

    def complexity(self, forward: BatchPass, values: list, own: list) -> Any:
        """Returns `KL(q || prior)`."""

        def refuse(i: int) -> Any:
            raise ValueError(_no_expectation(self.prior))

        inferred = [values[i] for i in forward.inferred]
        return self._kl_divergence(inferred, own, refuse)

    def seeded(self) -> list[NoiseSeed]:
        """Returns the objects with the seeds of the training noise."""
        inner = self.hessian_diagonal
        return [self, *([inner] if isinstance(inner, NoiseSeed) else [])]

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "hessian_diagonal": serialize(self.hessian_diagonal),
        }


def _no_expectation(prior: Any) -> str:
    return (
        "`TaylorVI` needs a `prior` with a known expectation under a Gaussian. "
        "Use `keras_bdl.priors.Normal`, `HeNormal` or `Laplace`. "
        f"Received: prior={type(prior).__name__}"
    )


_NAMES = (
    "relu",
    "relu6",
    "leaky_relu",
    "hard_sigmoid",
    "hard_tanh",
    "hard_shrink",
    "soft_shrink",
    "sparse_sigmoid",
    "threshold",
)
_LAYERS = (keras.layers.ReLU, keras.layers.LeakyReLU, keras.layers.PReLU)


def _warn_of_kinks(model: keras.Model) -> bool:
    """Warns of piecewise linear activations; returns whether it warned."""
    found = [
        layer.name
        for layer in _keras.inner_layers(model)
        if isinstance(layer, _LAYERS)
        or any(
            _name(getattr(layer, attribute, None)) in _NAMES
            for attribute in ("activation", "recurrent_activation")
        )
    ]
    if found:
        warnings.warn(
            "`TaylorVI` differentiates twice, and the second derivative of a "
            "piecewise linear activation is zero: the objective ignores the "
            "curvature of these layers. Use a smooth activation, such as "
            '"softplus" or "gelu". '
            f"Received: layers {found}",
            stacklevel=2,
        )
    return bool(found)


def _name(activation: Any) -> str | None:
    return getattr(activation, "__name__", None)


def mean_over_groups(
    of_group: Callable[[BatchPass], tuple[Outcome, list]],
    forward: BatchPass,
    size: int,
) -> tuple[Outcome, list]:
    """Returns mean outcome and gradients over groups of `size` examples.

    The outputs are those of all examples. If `size` does not divide their
    number, the first group is smaller and counts less. BatchNorm normalises
    over a group.
    """
    examples = forward.examples
    rest = (examples - 1) // size  # whole groups after the first one
    if not isinstance(rest, int):
        rest = tf.maximum(rest, 0)  # a replica may have no examples
    begin = examples - rest * size
    first = _part(forward, 0, begin)
    outcome, gradients = of_group(first)
    if isinstance(rest, int) and rest == 0:
        return outcome, gradients

    def weight(part: Any) -> Any:
        # A replica without examples has an empty group with weight 0.
        return tf.math.divide_no_nan(
            tf.cast(part, "float32"), tf.cast(examples, "float32")
        )

    def scaled(outcome: Outcome, gradients: list, by: Any) -> list:
        numbers = [outcome.loss, outcome.nll, *gradients]
        return [n * tf.cast(by, n.dtype) for n in numbers]

    outputs = keras.tree.flatten(outcome.y_pred)
    arrays = [
        tf.TensorArray(y.dtype, rest, element_shape=(size, *y.shape[1:]))
        for y in outputs
    ]
    # Replicas cannot assign inside of a loop: the loop carries the values.
    state = first.assigned
    values = [tf.convert_to_tensor(v.value) for v in state]
    share = weight(size)

    def body(i: Any, sums: list, arrays: list, values: list) -> tuple:
        pairs = list(zip(state, values, strict=True))
        part = _part(forward, begin + i * size, size, pairs)
        found, gradients = of_group(part)
        added = scaled(found, gradients, share)
        y_pred = keras.tree.flatten(found.y_pred)
        return (
            i + 1,
            [a + b for a, b in zip(sums, added, strict=True)],
            [a.write(i, y) for a, y in zip(arrays, y_pred, strict=True)],
            part.new_state,
        )

    _, sums, arrays, values = tf.while_loop(
        lambda i, *_: i < rest,
        body,
        (
            tf.constant(0),
            scaled(outcome, gradients, weight(begin)),
            arrays,
            values,
        ),
        parallel_iterations=1,
    )
    for variable, value in zip(state, values, strict=True):
        variable.assign(value)
    outputs = [
        tf.concat([y, a.concat()], 0)
        for y, a in zip(outputs, arrays, strict=True)
    ]
    loss, nll, *gradients = sums
    y_pred = keras.tree.pack_sequence_as(outcome.y_pred, outputs)
    return Outcome(loss, nll, y_pred), gradients


def _part(
    forward: BatchPass, begin: Any, size: Any, state: list | None = None
) -> BatchPass:
    """Returns a `BatchPass` of `size` of the examples."""
    # `gather` instead of a slice: XLA also compiles a loop that never runs,
    # and rejects a slice longer than the batch.
    rows = begin + tf.range(size)

    def cut(array: Any) -> Any:
        return None if array is None else tf.gather(array, rows)

    return BatchPass(
        forward.model,
        keras.tree.map_structure(cut, forward.data),
        excluded=forward.excluded,
        scale=forward.scale,
        state=state,
    )
