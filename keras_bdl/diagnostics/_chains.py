"""The samples of several chains: their weights and their predictions."""

import collections.abc
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import Data
from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_count
from keras_bdl.posteriors._covered_weights import learned_variables
from keras_bdl.posteriors._ensemble import Ensemble
from keras_bdl.prediction._predict import predict


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
    chains = keras_bdl.extend.WeightChains(found, model)
    for path, samples in chains.items():
        print(path, keras_bdl.extend.effective_sample_size(samples).min())
    ```
    """

    def __init__(
        self,
        chains: list,
        model: keras.Model | None = None,
        *,
        samples: int | None = None,
    ) -> None:
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

    def __getitem__(self, name: str) -> Any:
        return self._stack(name, np.asarray)

    def __iter__(self) -> Any:
        return iter(self._places)

    def __len__(self) -> Any:
        return len(self._places)

    def entries(self, name: str, positions: np.ndarray | slice) -> np.ndarray:
        """Returns entries of a variable, `(chains, samples, entries)`.

        Args:
            name: Name of the variable.
            positions: Indices of the entries in the flattened variable.
        """
        return self._stack(name, lambda a: np.asarray(a).reshape(-1)[positions])

    def _stack(self, name: str, read: Any) -> Any:
        place = self._places[name]
        return np.stack(
            [
                np.stack([read(member[place]) for member in chain])
                for chain in self._members
            ]
        )


def _places(structure: Any) -> dict[str, Any]:
    names = structure.names or ["weight"] * len(structure.shapes)
    return {f"{i}/{name}": i for i, name in enumerate(names)}


def _trained_places(model: keras.Model, ensemble: Any) -> dict[str, Any]:
    record, variables = ensemble.trained_weights, ensemble.variables(model)
    trained = {id(v) for v in learned_variables(model, record, ())}
    paths = [v.path for v in variables]
    # In Keras, two layers may have the same name.
    return {
        path if paths.count(path) == 1 else f"{i}/{path}": i
        for i, (path, v) in enumerate(zip(paths, variables, strict=True))
        if id(v) in trained
    }


_SEED = 0


def prediction_chains(
    chains: list,
    model: keras.Model,
    x: Data,
    *,
    samples: int | None = None,
    **options: Any,
) -> Any:
    """Returns the predictions of every sample of several chains.

    Use R-hat and ESS of predictions to judge convergence. Chains that have
    converged agree on predictions, even if each chain samples another symmetric
    copy of the weights.

    Args:
        chains: List with one `keras_bdl.callbacks.SampleCollector`, or its
            `posterior`, for each chain.
        model: The model that was trained.
        x: Inputs, as in `keras_bdl.predict`. They are read once per chain. A
            few hundred inputs are enough: the result needs `chains * samples`
            times the memory of one prediction.
        samples: Number of the latest samples to take from each chain. Defaults
            to `None`, all samples; the chains must then have equal lengths.
        **options: Passed to `keras_bdl.predict`: `batch_size`, `options`,
            `verbose`.

    Returns:
        Array of shape `(chains, samples, n, k)` of probabilities or, in
        regression, means. With several outputs, such arrays in the structure
        of the outputs.

    Example:

    ```python
    chains = [posterior, another_posterior]
    p = keras_bdl.diagnostics.prediction_chains(chains, model, x_test)
    keras_bdl.extend.potential_scale_reduction(p)  # of shape (n, k)
    ```
    """
    outputs = [
        _outputs(ensemble, model, x, options)
        for ensemble in ensembles_of(chains, samples)
    ]
    return keras.tree.map_structure(lambda *one: np.stack(one), *outputs)


def _outputs(ensemble: Any, model: keras.Model, x: Any, options: Any) -> Any:
    samples = len(ensemble)
    prediction = predict(
        model,
        x,
        posterior=ensemble,
        samples=samples,
        seed=_SEED,
        keep_samples=True,
        **options,
    )
    # `predict` takes the members in an order that depends on the seed.
    taken = [seed % samples for seed in ensemble.seeds(_SEED, samples)]
    order = np.argsort(taken)
    return keras.tree.map_structure(lambda p: p.samples[order], prediction)


def ensembles_of(chains: list, samples: int | None = None) -> list[Ensemble]:
    """Returns the `Ensemble` of every chain, all of equal length."""
    chains = as_list("chains", chains, "`SampleCollector` or `Ensemble`")
    found = [getattr(chain, "posterior", chain) for chain in chains]
    for i, one in enumerate(found):
        if not isinstance(one, Ensemble):
            raise ValueError(
                "`chains` must have one `SampleCollector`, or its `posterior`, "
                "for each chain. "
                f"Received: chains[{i}] of type {type(one).__name__}"
            )
        if _state(one) != _state(found[0]):
            raise ValueError(
                "`chains` must be samples of one architecture. Received: "
                f"chains[{i}] with other variables than chains[0]"
            )
    if not found:
        raise ValueError(
            "`chains` must have at least one chain. Received: chains=[]"
        )
    return _latest(found, samples)


def members_of(ensemble: Ensemble) -> list[Any]:
    """Returns the weights of every sample, read lazily if they are files."""
    return ensemble.get_state()["members"]


def _state(ensemble: Any) -> Any:
    return ensemble.structure.get_state()


def _latest(found: Any, samples: Any) -> Any:
    lengths = [len(one) for one in found]
    if samples is None:
        if len(set(lengths)) > 1:
            raise ValueError(
                "`chains` must have equally many samples. Give `samples="
                f"{min(lengths)}` to take the latest ones of each. "
                f"Received: chains of {lengths} samples"
            )
        return found
    check_count("samples", samples)
    if samples > min(lengths):
        raise ValueError(
            "`samples` must be at most the length of the shortest chain, "
            f"{min(lengths)}. Received: samples={samples}"
        )
    return [
        Ensemble(
            members_of(one)[-samples:],
            names=one.structure.names,
            covers_frozen=one.covers_frozen,
        ).beside(one.trained_weights, one.frozen_weights)
        for one in found
    ]
