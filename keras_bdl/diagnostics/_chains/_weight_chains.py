"""Weights of several chains, one array for each variable."""

import collections.abc
from typing import Any

import keras
import numpy as np

from keras_bdl.diagnostics._chains._chain_members import ensembles_of
from keras_bdl.diagnostics._chains._chain_members import members_of
from keras_bdl.posteriors._covered_weights import learned_variables


class WeightChains(collections.abc.Mapping):
    """The samples of several chains, one array for each variable.

    Use it to examine single weights, for example with
    `keras_bdl.diagnostics.convergence`. The object is a mapping from the name
    of a variable to an array of shape `(chains, samples, *shape)`. Each access
    builds the array anew, from disk if the samples are files, so only one
    variable at a time is in memory.

    Weights alone do not measure convergence. Exchanging two hidden units
    changes the weights of a network, but not its outputs. Chains that agree on
    every prediction may therefore disagree on every weight. Use
    `prediction_chains` first.

    Attributes:
        shapes: Dict from the name of a variable to its shape.
        num_chains: Number of chains.
        num_samples: Number of samples of each chain.

    Args:
        chains: List with one `keras_bdl.callbacks.SampleCollector`, or its
            `posterior`, for each chain.
        model: The model that was trained. The names are then the paths of the
            model's variables, and the mapping has only trainable variables.
            Defaults to `None`: the mapping has all variables, with a number in
            the name, such as `"0/kernel"`.
        samples: Number of the latest samples to take from each chain. Defaults
            to `None`, all samples; the chains must then have equal lengths.

    Example:

    ```python
    found = [posterior, another_posterior]
    chains = keras_bdl.diagnostics.WeightChains(found, model)
    for path, samples in chains.items():
        print(path, keras_bdl.diagnostics.effective_sample_size(samples).min())
    ```
    """

    def __init__(
        self,
        chains: list,
        model: keras.Model | None = None,
        *,
        samples: int | None = None,
    ):
        ensembles = ensembles_of(chains, samples)
        structure: Any = ensembles[0].structure
        self._members = [members_of(ensemble) for ensemble in ensembles]
        self._places = _places(structure)
        if model is not None:
            ensembles[0].check(model)
            self._places = _trained_places(model, ensembles[0])
        self.shapes = {n: structure.shapes[i] for n, i in self._places.items()}
        self.num_chains = len(ensembles)
        self.num_samples = len(ensembles[0])

    def __getitem__(self, name):
        return self._stack(name, np.asarray)

    def __iter__(self):
        return iter(self._places)

    def __len__(self):
        return len(self._places)

    def entries(self, name: str, positions: np.ndarray | slice) -> np.ndarray:
        """Returns entries of a variable, `(chains, samples, entries)`.

        Args:
            name: Name of the variable.
            positions: Indices of the entries in the flattened variable.
        """
        return self._stack(name, lambda a: np.asarray(a).reshape(-1)[positions])

    def _stack(self, name, read):
        place = self._places[name]
        return np.stack(
            [
                np.stack([read(member[place]) for member in chain])
                for chain in self._members
            ]
        )


def _places(structure):
    names = structure.names or ["weight"] * len(structure.shapes)
    return {f"{i}/{name}": i for i, name in enumerate(names)}


def _trained_places(model, ensemble):
    record, variables = ensemble.trained_weights, ensemble.variables(model)
    trained = {id(v) for v in learned_variables(model, record, ())}
    paths = [v.path for v in variables]
    # In Keras, two layers may have the same name.
    return {
        path if paths.count(path) == 1 else f"{i}/{path}": i
        for i, (path, v) in enumerate(zip(paths, variables, strict=True))
        if id(v) in trained
    }
