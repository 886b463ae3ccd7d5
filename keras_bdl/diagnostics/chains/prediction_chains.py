"""Predictions of several chains."""

import keras
import numpy as np

from keras_bdl.diagnostics.chains.chain_members import ensembles_of
from keras_bdl.prediction.predict import predict

_SEED = 0


def prediction_chains(
    chains: list, model, x, draws: int | None = None, **options
):
    """Returns what every draw of several chains predicts.

    Chains that have converged agree on predictions, whatever symmetric copy
    of the weights each of them visits: of probabilities and outputs R-hat and
    ESS say what matters.

    Args:
        chains: A list with one `keras_bdl.callbacks.SampleCollector`, or the
            `Ensemble` that is its `posterior`, for each chain.
        model: The model that was trained.
        x: Inputs, as in `keras_bdl.predict`; they are read once a chain. A
            few hundred tell enough: memory is `chains * draws` times that of
            one prediction.
        draws: How many draws to take of each chain, the latest ones.
            Defaults to `None`, all: then the chains must be equally long.
        **options: Of `keras_bdl.predict`: `batch_size`, `steps`, `task`,
            `from_logits`, `moments`, `verbose`.

    Returns:
        Array of shape `(chains, draws, n, k)` of probabilities or, in
        regression, means; with several outputs, these in their structure.

    Example:

    ```python
    chains = [samples_1, samples_2]
    p = keras_bdl.diagnostics.prediction_chains(chains, model, x)
    keras_bdl.diagnostics.potential_scale_reduction(p)  # of shape (n, k)
    ```
    """
    outputs = [
        _outputs(ensemble, model, x, options)
        for ensemble in ensembles_of(chains, draws)
    ]
    return keras.tree.map_structure(lambda *one: np.stack(one), *outputs)


def _outputs(ensemble, model, x, options):
    draws = len(ensemble)
    prediction = predict(
        model,
        x,
        posterior=ensemble,
        samples=draws,
        seed=_SEED,
        keep_samples=True,
        **options,
    )
    # It begins with the draw that its seed selects.
    taken = [seed % draws for seed in ensemble.seeds(_SEED, draws)]
    order = np.argsort(taken)
    return keras.tree.map_structure(lambda p: p.samples[order], prediction)
