"""The posterior that a trained model holds, in its optimizer or its layers."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_bdl._keras import inner_optimizer
from keras_bdl._protocols import OwnsPosterior
from keras_bdl._protocols import OwnsVariables
from keras_bdl._random._seeds import sequence
from keras_bdl.distribute._replicas import restored
from keras_bdl.distributions import MeanField
from keras_bdl.layers._variational import sampling_layers
from keras_bdl.posteriors._covered_weights import Structure
from keras_bdl.posteriors._gaussian import KroneckerBlock
from keras_bdl.posteriors._gaussian import blocks_of_variances
from keras_bdl.posteriors._posterior import Posterior


def posterior_of(model: keras.Model) -> Posterior:
    """Returns the posterior that a trained model holds.

    Use this function after training with a natural-gradient optimizer, with
    an objective or with variational layers, to save the posterior or to pass
    it to another function. `keras_bdl.predict` finds the posterior itself.

    The function returns the first posterior that exists: that of the objective,
    of the optimizer (also inside a `LossScaleOptimizer`) or of the layers. A
    callback such as `keras_bdl.SWAG` has its own attribute `posterior`.

    Args:
        model: A compiled Keras model after training.

    Example:

    ```python
    posterior = keras_bdl.posterior_of(net)
    posterior.save("posterior.bdl")
    ```
    """
    posterior = held_posterior(model)
    if posterior is None:
        optimizer = inner_optimizer(model)
        raise ValueError(
            "`model` must hold a posterior: in its optimizer, such as "
            "`keras_bdl.VOGN`, in its objective or in variational layers. "
            "Pass the `posterior` attribute of a callback such as "
            "`keras_bdl.SWAG` directly. "
            f"Received: model={getattr(model, 'name', model)!r}, "
            f"optimizer={type(optimizer).__name__}"
        )
    return posterior


def held_posterior(
    model: keras.Model, *, trained_with_noise: bool = False
) -> Posterior | None:
    """Returns the posterior that a model holds, or `None`.

    `trained_with_noise` skips an optimizer or objective that trained the
    weights without noise, such as `keras_bdl.OGN`.
    """
    for method in (getattr(model, "objective", None), inner_optimizer(model)):
        noisy = getattr(method, "noisy_training", True)
        posterior = getattr(method, "posterior", None)
        if callable(posterior) and (noisy or not trained_with_noise):
            return posterior(model)
    if sampling_layers(model):
        return Layerwise(model)
    return None


def posterior_owner(model: keras.Model) -> Any:
    """Returns the objective or optimizer that fits a posterior, or `None`.

    Such a method keeps the width of the posterior in its own variables.
    """
    objective = getattr(model, "objective", None)
    if isinstance(objective, OwnsVariables) and (
        objective.trainable_variables or not objective.built
    ):
        return objective
    optimizer = inner_optimizer(model)
    return optimizer if isinstance(optimizer, OwnsPosterior) else None


class Layerwise(Posterior):
    """The posterior that the variational layers of a model have learned.

    `keras_bdl.predict` uses this posterior for models with variational layers.
    Make a `Layerwise` yourself to save it or to mix several networks.

    Each layer with a method `sample_weights` (`SamplesWeights`) draws its own
    weights. The variables of the model hold the distribution, so further
    training changes the posterior. A sample for another model of the same
    architecture includes all weights of this model, also weights without a
    distribution and BatchNorm statistics. A file holds all weights, too.

    Args:
        model: A model with at least one layer that draws its weights.

    Example:

    ```python
    other = keras.models.clone_model(net)  # with weights of its own
    both = keras_bdl.posteriors.Mixture(
        [keras_bdl.posteriors.Layerwise(one) for one in (net, other)]
    )
    prediction = keras_bdl.predict(net, x, both, samples=4)
    ```
    """

    def __init__(self, model: keras.Model):
        variables = [v for v, _ in _draw(model, 0)]
        if not variables:
            raise ValueError(
                "`model` must have variational layers, with a method "
                "`sample_weights(seed)`. Use another posterior, or "
                "`keras_bdl.convert` the model. "
                f"Received: model={model.name!r} without such a layer"
            )
        super().__init__(Structure.of(variables))
        self._model: keras.Model | None = model
        self._weights: Any = None  # from a file

    def variables(self, model: keras.Model) -> list:
        """Returns the means, which samples replace."""
        return [v for v, _ in _draw(model, 0)]

    def needs_batch_norm(self, seed: int) -> bool:
        """Returns `False`: the statistics are averages over samples."""
        return False

    def sample(self, seed: int) -> list[np.ndarray]:
        """Returns a sample of the model that the constructor received."""
        return [
            np.asarray(keras.ops.convert_to_numpy(value))
            for _, value in _draw(self._bound_model(), seed)
        ]

    def mean(self) -> list[np.ndarray]:
        """Returns the means of the model that the constructor received."""
        variables = self.variables(self._bound_model())
        return [keras.ops.convert_to_numpy(v) for v in variables]

    def covariance_blocks(self) -> list[KroneckerBlock] | None:
        """Returns the variances, or `None` unless all layers are Gaussian."""
        model = self._bound_model()
        variances: dict[int, Any] = {}
        for layer in sampling_layers(model):
            # Layers of users have only `sample_weights`. Truncated noise and
            # that of radial layers is not Gaussian.
            if (
                getattr(layer, "family", None) is not MeanField
                or layer.noise_bound < 1.0
            ):
                return None
            for posterior in layer.weight_posteriors:
                variance = posterior.distribution().variance
                variances[id(posterior.mean)] = np.asarray(variance)
        return blocks_of_variances(
            [variances.get(id(v)) for v in self.variables(model)], 1.0
        )

    def check(self, model: keras.Model) -> None:
        """Raises an error if the posterior does not belong to the model."""
        super().check(model)
        if self._model is None:
            Structure(**self._weights["structure"]).check(model.weights)
        elif model is not self._model:
            Structure.of(self._model.weights).check(model.weights)

    @contextlib.contextmanager
    def drawing(self, model: keras.Model) -> Iterator[Callable[[int], None]]:
        """Puts several samples into the model, one after the other.

        Before each sample, the method restores the means, because each layer
        draws its weights around its current means.
        """
        self.check(model)
        with restored(model.variables) as restore_means:

            def draw(seed: int) -> None:
                restore_means()
                self._put(model, seed)

            yield draw

    def assignments(
        self, model: keras.Model, seed: int
    ) -> list[tuple[Any, Any]]:
        """Returns the sample; for another model, all weights come first."""
        if model is self._model:
            return _draw(model, seed)
        values = self._all_weights()["values"]
        weights = list(zip(model.weights, values, strict=True))
        with keras.StatelessScope(weights):
            return [*weights, *_draw(model, seed)]

    def mean_assignments(self, model: keras.Model) -> list[tuple[Any, Any]]:
        """Returns the means: all weights if the model is another."""
        if model is self._model:
            return []
        values = self._all_weights()["values"]
        return list(zip(model.weights, values, strict=True))

    def get_state(self) -> dict[str, Any]:
        """Returns the structure and all weights of the model."""
        return {**super().get_state(), "weights": self._all_weights()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Layerwise":
        """Returns a posterior without a model. Pass a model to `sampled`."""
        self = cls.__new__(cls)
        Posterior.__init__(self, Structure(**state["structure"]))
        self._model = None
        self._weights = state["weights"]
        return self

    def _all_weights(self) -> dict[str, Any]:
        """Returns all weights of the model, and their structure."""
        if self._model is None:
            return self._weights
        weights = self._model.weights
        return {
            "structure": Structure.of(weights).get_state(),
            "values": [keras.ops.convert_to_numpy(v) for v in weights],
        }

    def _bound_model(self) -> keras.Model:
        if self._model is None:
            raise RuntimeError(
                "A `Layerwise` posterior from a file has no model. Use "
                "`posterior.sampled(model, seed)`, or make "
                "`Layerwise(model)`. Received: a posterior without a model"
            )
        return self._model


def _draw(model: keras.Model, seed: int) -> list[tuple[Any, Any]]:
    """Returns the pairs of `sample_weights` of all layers, in one list."""
    return [
        pair
        for i, layer in enumerate(sampling_layers(model))
        for pair in layer.sample_weights(_layer_seed(seed, i))
    ]


def _layer_seed(seed: int, index: int) -> int:
    return int(sequence(seed, index).generate_state(1, np.uint64)[0])
