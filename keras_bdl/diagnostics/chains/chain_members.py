"""The samples of each chain, from what training left."""

from keras_bdl.arguments import as_list
from keras_bdl.data.checked_inputs import check_count
from keras_bdl.posteriors.ensemble import Ensemble


def ensembles_of(chains, draws: int | None = None):
    """Returns the `Ensemble` of every chain, all of one length.

    Args:
        chains: A list with one `SampleCollector` or `Ensemble` a chain.
        draws: How many draws to take of each, the latest ones. Defaults to
            `None`, all: then all chains must have equally many.
    """
    chains = as_list("chains", chains, "`SampleCollector` or `Ensemble`")
    found = [getattr(chain, "posterior", chain) for chain in chains]
    for i, one in enumerate(found):
        if not isinstance(one, Ensemble):
            raise ValueError(
                "`chains` must have one `SampleCollector`, or the `Ensemble` "
                "that is its `posterior`, for each chain. "
                f"Received: chains[{i}] of type {type(one).__name__}"
            )
        if one.structure.get_state() != found[0].structure.get_state():
            raise ValueError(
                "`chains` must be samples of one architecture. Received: "
                f"chains[{i}] with other variables than chains[0]"
            )
    if not found:
        raise ValueError(
            "`chains` must have at least one chain. Received: chains=[]"
        )
    return _latest(found, draws)


def members_of(ensemble):
    """Returns the weights of every draw, lazily where they lie on disk."""
    return ensemble.get_state()["members"]


def _latest(found, draws):
    lengths = [len(one) for one in found]
    if draws is None:
        if len(set(lengths)) > 1:
            raise ValueError(
                "`chains` must have equally many draws. Give `draws="
                f"{min(lengths)}` to take the latest ones of each. "
                f"Received: chains of {lengths} draws"
            )
        return found
    check_count("draws", draws)
    if draws > min(lengths):
        raise ValueError(
            "`draws` must not be more than the shortest chain has, "
            f"{min(lengths)}. Received: draws={draws}"
        )
    return [
        Ensemble(members_of(one)[-draws:], one.structure.names) for one in found
    ]
