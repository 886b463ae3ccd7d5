"""Predictions of every sample of several chains."""

from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import Data
from keras_bdl.diagnostics._chains._chain_members import ensembles_of
from keras_bdl.prediction._predict import predict

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
    keras_bdl.diagnostics.potential_scale_reduction(p)  # of shape (n, k)
    ```
    """
    outputs = [
        _outputs(ensemble, model, x, options)
        for ensemble in ensembles_of(chains, samples)
    ]
    return keras.tree.map_structure(lambda *one: np.stack(one), *outputs)


def _outputs(ensemble, model, x, options):
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
