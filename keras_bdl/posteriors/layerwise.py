"""The posterior of a model whose layers draw their own weights."""

import contextlib

import keras
import numpy as np

from keras_bdl.distribute.variable_copies import restored
from keras_bdl.layers.variational_layers import sampling_layers
from keras_bdl.posteriors.posterior import Posterior
from keras_bdl.posteriors.structure import Structure
from keras_bdl.random.counter_numbers import sequence


class Layerwise(Posterior):
    """Asks each layer for a draw of its weights (see `SamplesWeights`).

    The distribution is in the variables of the model, and follows them when
    they are trained on. Put into another model of the same architecture, it
    brings all weights of its own model along, those without a distribution
    and BatchNorm statistics included. So several networks can be mixed, and a
    file, which holds these weights, needs no other.

    Args:
        model: A model with at least one layer that draws its weights.

    Example:

    ```python
    ensemble = keras_bdl.posteriors.Mixture(
        [keras_bdl.posteriors.Layerwise(net) for net in (net_1, net_2)]
    )
    prediction = keras_bdl.predict(net_1, x, posterior=ensemble)
    ```
    """

    def __init__(self, model: keras.Model):
        variables = [v for v, _ in _draw(model, 0)]
        if not variables:
            raise ValueError(
                "`model` must have a layer that draws its weights: a method "
                "`sample_weights(seed)` that returns pairs of a variable and "
                "a value. Use another posterior, or convert the model. "
                f"Received: model={model.name!r} without one"
            )
        super().__init__(Structure.of(variables))
        self._model = model
        self._weights = None  # those of a file

    def variables(self, model):
        """Returns the means that draws take the place of."""
        return [v for v, _ in _draw(model, 0)]

    def needs_batch_norm(self, seed):
        """The moving statistics are averages over draws, from training."""
        return False

    def sample(self, seed):
        """Returns draw `seed` of the model given to the constructor."""
        return [
            np.asarray(keras.ops.convert_to_numpy(value))
            for _, value in _draw(self._bound_model(), seed)
        ]

    def mean(self):
        """Returns the means in the model given to the constructor."""
        variables = self.variables(self._bound_model())
        return [keras.ops.convert_to_numpy(v) for v in variables]

    def check(self, model):
        """Raises a `ValueError` that says why the model does not fit."""
        super().check(model)
        if self._model is None:
            Structure(**self._weights["structure"]).check(model.weights)
        elif model is not self._model:
            Structure.of(self._model.weights).check(model.weights)

    @contextlib.contextmanager
    def drawing(self, model):
        """Puts the means back before each draw: it starts from them."""
        self.check(model)
        with restored(model.variables) as restore_means:

            def draw(seed):
                restore_means()
                self._put(model, seed)

            yield draw

    def assignments(self, model, seed):
        """Returns the draw, and for another model all weights before it."""
        if model is self._model:
            return _draw(model, seed)
        values = self._all_weights()["values"]
        weights = list(zip(model.weights, values, strict=True))
        with keras.StatelessScope(weights):
            return [*weights, *_draw(model, seed)]

    def get_state(self):
        """Returns all weights of the model as well."""
        return {**super().get_state(), "weights": self._all_weights()}

    @classmethod
    def from_state(cls, state):
        """Returns the posterior without a model; `sampled` is given one."""
        self = cls.__new__(cls)
        Posterior.__init__(self, Structure(**state["structure"]))
        self._model = None
        self._weights = state["weights"]
        return self

    def _all_weights(self):
        """Returns the weights to bring along, and how to recognise them."""
        if self._model is None:
            return self._weights
        weights = self._model.weights
        return {
            "structure": Structure.of(weights).get_state(),
            "values": [keras.ops.convert_to_numpy(v) for v in weights],
        }

    def _bound_model(self):
        if self._model is None:
            raise RuntimeError(
                "A `Layerwise` posterior that comes from a file has no model "
                "to draw from. Use `posterior.sampled(model, seed)`, or make "
                "`Layerwise(model)`."
            )
        return self._model


def _draw(model, seed):
    """Returns the pairs of all layers, each with a seed of its own."""
    return [
        pair
        for i, layer in enumerate(sampling_layers(model))
        for pair in layer.sample_weights(_layer_seed(seed, i))
    ]


def _layer_seed(seed, index):
    return int(sequence(seed, index).generate_state(1, np.uint64)[0])
