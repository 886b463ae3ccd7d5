"""The posterior samples of each chain, from collectors or ensembles."""

from typing import Any

from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_count
from keras_bdl.posteriors._ensemble import Ensemble


def ensembles_of(chains: list, samples: int | None = None) -> list[Ensemble]:
    """Returns the `Ensemble` of every chain, all of equal length.

    Args:
        chains: List with one `SampleCollector` or `Ensemble` for each chain.
        samples: Number of the latest samples to take from each chain. Defaults
            to `None`, all samples; the chains must then have equal lengths.
    """
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


def _state(ensemble):
    return ensemble.structure.get_state()


def _latest(found, samples):
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
