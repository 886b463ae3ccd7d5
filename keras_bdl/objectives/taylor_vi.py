"""Deterministic variational inference by a Taylor expansion."""

import warnings

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.objectives.batch_outcome import by_groups
from keras_bdl.objectives.exact_moments import exact_moments
from keras_bdl.objectives.gaussian_objective import GaussianObjective
from keras_bdl.objectives.hessian_diagonal import SquaredGradient
from keras_bdl.objectives.hessian_diagonal import get

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


def warn_of_kinks(model):
    """Warns if a model has piecewise linear activations; says whether it did.

    Args:
        model: A Keras model.
    """
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
            "piecewise linear activation is zero wherever there is one: the "
            "objective does not see how these layers bend. Use a smooth "
            'activation, such as "softplus" or "gelu". '
            f"Received: layers {found}",
            stacklevel=2,
        )
    return bool(found)


def _name(activation):
    return getattr(activation, "__name__", None)


@keras.saving.register_keras_serializable(package="keras_bdl")
class TaylorVI(GaussianObjective):
    """Variational inference without noise: a penalty on the gradient.

    Fits independent Gaussians `q = N(mu, sigma^2)` to the posterior of the
    ordinary weights mu of an ordinary model. The evidence bound is expanded
    to the second order around mu, so that nothing is drawn:

        loss = nll(mu) + 1/2 sum_i sigma_i^2 h_i + (tau / N) KL(q || p)   (1)

    with nll the mean negative log-likelihood, N the number of examples, p the
    prior, tau the temperature, which multiplies the KL alone, and h an
    estimate of the diagonal of the Hessian of nll. By default it is

        h = S g^2,   g = gradient of nll of S examples                    (2)

    With one `stddev` for all weights, `sigma^2 = eta / (2 S)`, the middle
    term is then `(eta / 4) ||g||^2`: the regularizer that stochastic gradient
    descent with the learning rate eta is thought to have of its own. Where
    variances are learned, the best ones are, for a prior `N(0, s^2)`,

        1 / sigma_i^2 = 1 / s^2 + N h_i / tau                             (3)

    averaged over batches. (2) depends on S: `gradient_batch_size` fixes it
    for any batch size and any number of replicas. It vanishes, and by (3)
    variances go to those of the prior, where a network fits all of its
    training data: mu is then better than draws from q. A fixed variance of
    the size that steps of gradient descent leave behind does without.

    The loss of the model must be the mean negative log-likelihood. `nll`
    among the logs is the sum of the first two terms of (1), `kl` is the KL
    divided by N. In evaluation `nll` is that of mu or of draws alone, and the
    loss adds `kl` without tau: of `loss` and `val_loss`, only the latter is
    comparable between temperatures. The optimizer may be any of Keras without
    weight decay. `compile(samples=...)` and `keras_bdl.predict` draw from q.

    The gradient of (1) is a second derivative of the model. Activations that
    are piecewise linear, such as ReLU, have none that would say anything: a
    warning names them; use softplus, GELU, SiLU or tanh. BatchNorm works: it
    is differentiated through the statistics of the batch, and its own
    weights have neither prior nor variance. Its moving statistics belong to
    mu, so give `keras_bdl.predict` the training data as `batch_norm_data`.

    Args:
        covariance: `"fixed"`, the given variance for all weights;
            `"scalar"`, a learned one for each tensor, such as a kernel;
            `"diagonal"`, a learned one for each weight.
        stddev: sigma, or where it is learned its first value. Defaults to
            `None`: 0.01 where it is learned; it has to be given if it is
            fixed.
        learning_rate_equivalent: eta, in place of `stddev`. Needs
            `gradient_batch_size`. Defaults to `None`.
        gradient_batch_size: S. Each replica splits its part of a batch into
            groups of this size and works through one after the other.
            Defaults to `None`: the part is one group, as in the paper.
        prior: p, one of `keras_bdl.priors` that knows its expectation under
            a Gaussian: `Normal`, `HeNormal` or `Laplace`, or a normal
            distribution of TensorFlow Probability. Defaults to `None`:
            `Normal(1.0)`.
        temperature: tau, float or schedule. Defaults to `1.0`.
        hessian_diagonal: h: `SquaredGradient()`, `PerExampleFisher()`,
            `Hutchinson()` or another `keras_bdl.objectives.HessianDiagonal`.
            Defaults to `None`: `SquaredGradient()`.
        dataset_size: N. Defaults to `None`: counted by
            `keras_bdl.Model.fit`.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables without prior and variance. Defaults to
            `("BatchNormalization",)`.
        learning_rate_multiplier: How many times as fast as the optimizer's
            learning rate says the logarithms of learned `stddev` move.
            Defaults to `10.0`.
        seed: Seed of the draws in evaluation. Defaults to `0`.

    Example:

    ```python
    model = keras_bdl.applications.PreActResNet18(activation="softplus")
    model.compile(
        "adam",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        objective=keras_bdl.objectives.TaylorVI("diagonal", temperature=0.1),
    )
    ```

    Reference:
        - Unlu and Aitchison, [Gradient Regularisation as Approximate
          Variational Inference](https://arxiv.org/abs/2011.10443), section 3
    """

    def __init__(
        self,
        covariance: str,
        stddev: float | None = None,
        learning_rate_equivalent: float | None = None,
        gradient_batch_size: int | None = None,
        prior=None,
        temperature=1.0,
        hessian_diagonal=None,
        dataset_size: int | None = None,
        exclude_from_inference=("BatchNormalization",),
        learning_rate_multiplier: float = 10.0,
        seed: int = 0,
    ):
        super().__init__(
            covariance,
            stddev,
            learning_rate_equivalent,
            gradient_batch_size,
            prior,
            temperature,
            dataset_size,
            exclude_from_inference,
            learning_rate_multiplier,
            seed,
        )
        if hessian_diagonal is None:
            hessian_diagonal = SquaredGradient()
        self.hessian_diagonal = get(hessian_diagonal)
        if not hasattr(self.prior, "expected_log_prob"):
            raise ValueError(_no_expectation(self.prior))
        if (
            gradient_batch_size is not None
            and learning_rate_equivalent is None
            and not self.hessian_diagonal.depends_on_group
        ):
            raise ValueError(
                "`gradient_batch_size` must be left out where "
                "`hessian_diagonal` does not depend on it. Received: "
                f"gradient_batch_size={gradient_batch_size}, hessian_diagonal="
                f"{type(self.hessian_diagonal).__name__}"
            )
        self._warned = False

    def check(self, model, inferred):
        """Also warns of activations without a second derivative."""
        super().check(model, inferred)
        if model.train_samples != 1:
            raise ValueError(
                "`TaylorVI` draws nothing in training: compile without "
                f"`train_samples`. Received: train_samples="
                f"{model.train_samples}"
            )
        if not self._warned:
            self._warned = warn_of_kinks(model)

    def gradients(self, forward, values, own):
        """Returns the outcome of a batch and its gradients, by groups."""

        def look(part):
            outcomes, gradients = self._second_order(part, values, own)
            return outcomes[0], gradients

        size = self.gradient_batch_size
        if size is None or not self.hessian_diagonal.depends_on_group:
            outcome, gradients = look(forward)
        else:
            outcome, gradients = by_groups(look, forward, size)
        return [outcome], gradients

    def _second_order(self, part, values, own):
        try:
            return super().gradients(part, values, own)
        except LookupError as error:
            if isinstance(error, (KeyError, IndexError)):
                raise  # of a layer, not of TensorFlow's list of gradients
            raise ValueError(
                "`TaylorVI` needs the second derivative of every operation "
                "between the weights and the loss, and TensorFlow does not "
                "know that of one of them. Replace the layer that uses it, or "
                "train with `SampledVI`, which needs first derivatives only. "
                f"Received: {error}"
            ) from error

    def look(self, forward, values, own):
        """Returns (1) without the KL."""
        with exact_moments():
            outcome, diagonal = self.hessian_diagonal(forward, values)
        stddevs = self._covariance.stddevs(own, len(forward.inferred))
        terms = []
        for i, stddev in zip(forward.inferred, stddevs, strict=True):
            # In float32, also where the layers compute in half precision.
            h = ops.cast(diagonal[i], "float32")
            terms.append(tf.reduce_sum(ops.square(stddev) * h))
        return [outcome.plus(0.5 * tf.add_n(terms))]  # (1)

    def complexity(self, forward, values, own):
        """Returns `KL(q || prior)`."""

        def refuse(i):
            raise ValueError(_no_expectation(self.prior))

        inferred = [values[i] for i in forward.inferred]
        return self._kl_divergence(inferred, own, refuse)

    def get_config(self):
        """Returns every constructor argument."""
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "hessian_diagonal": serialize(self.hessian_diagonal),
        }


def _no_expectation(prior):
    return (
        "`prior` must know its expectation under a Gaussian, for `TaylorVI` "
        "to draw nothing: use `keras_bdl.priors.Normal`, `HeNormal` or "
        f"`Laplace`. Received: prior={type(prior).__name__}"
    )
