"""Weights of several chains."""

import collections.abc

import numpy as np

from keras_bdl.diagnostics.chains.chain_members import ensembles_of
from keras_bdl.diagnostics.chains.chain_members import members_of


class WeightChains(collections.abc.Mapping):
    """The draws of several chains, one array a variable of the network.

    A mapping from the name of a variable to its draws, an array of shape
    `(chains, draws, *shape)`. It is put together each time it is asked for,
    from disk where the samples lie there, so that one variable at a time is
    in memory.

    Weights are no good measure of convergence on their own. A network is the
    same function after its hidden units changed places, and chains that agree
    on every prediction may disagree on every weight: see `prediction_chains`.

    Attributes:
        shapes: Dict from the name of a variable to its shape.
        num_chains: How many chains there are.
        num_draws: How many draws each has.

    Args:
        chains: A list with one `keras_bdl.callbacks.SampleCollector`, or the
            `Ensemble` that is its `posterior`, for each chain.
        model: The model that was trained. It tells the paths of the
            variables, and which of them are trained: others are left out.
            Defaults to `None`: all of them, named by number, `"0/kernel"`.
        draws: How many draws to take of each chain, the latest ones.
            Defaults to `None`, all: then the chains must be equally long.

    Example:

    ```python
    weights = keras_bdl.diagnostics.WeightChains([samples_1, samples_2], model)
    keras_bdl.diagnostics.effective_sample_size(weights["dense/kernel"])
    ```
    """

    def __init__(self, chains: list, model=None, draws: int | None = None):
        ensembles = ensembles_of(chains, draws)
        structure = ensembles[0].structure
        self._members = [members_of(ensemble) for ensemble in ensembles]
        self._places = _places(structure)
        if model is not None:
            ensembles[0].check(model)
            self._places = _trained_places(model)
        self.shapes = {n: structure.shapes[i] for n, i in self._places.items()}
        self.num_chains = len(ensembles)
        self.num_draws = len(ensembles[0])

    def __getitem__(self, name):
        return self._stack(name, np.asarray)

    def __iter__(self):
        return iter(self._places)

    def __len__(self):
        return len(self._places)

    def entries(self, name: str, positions):
        """Returns some entries of a variable, `(chains, draws, entries)`.

        Args:
            name: The variable.
            positions: Where they stand in the flattened variable.
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


def _trained_places(model):
    trained = {id(v) for v in model.trainable_variables}
    paths = [v.path for v in model.weights]
    # Keras lets two layers have one name.
    return {
        path if paths.count(path) == 1 else f"{i}/{path}": i
        for i, (path, v) in enumerate(zip(paths, model.weights, strict=True))
        if id(v) in trained
    }
