"""The prior precision with the best predictions on held-out data."""

import warnings
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import Data
from keras_bdl._data._batches import is_arrays
from keras_bdl.evaluation._evaluate import evaluate
from keras_bdl.evaluation._regression_report import RegressionReport
from keras_bdl.posteriors._laplace_gaussian import Laplace
from keras_bdl.prediction._options import PredictOptions
from keras_bdl.prediction._posterior_samples import DEFAULT_SAMPLES
from keras_bdl.prediction._predict import predict

# Powers of sqrt(10).
CANDIDATES = 10.0 ** (np.arange(-4, 11) / 2)


def best_prior_precision(
    posterior: Laplace,
    model: keras.Model,
    data: Data,
    *,
    options: dict[str, Any],
    batch_size: int | None,
    seed: int,
    verbose: int,
) -> float:
    """Returns the candidate with the best log-likelihood on held-out data.

    All candidates use the same random numbers for their posterior samples.

    Args:
        posterior: A `keras_bdl.posteriors.Laplace`.
        model: The model of the posterior.
        data: The `validation_data` of `fit_laplace`.
        options: Those of `PredictOptions` for the loss of the model.
        batch_size: Batch size for arrays.
        seed: Selects the posterior samples.
        verbose: Argument of `keras.utils.Progbar`.
    """
    x, y = data, None
    if is_arrays(data):
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise ValueError(
                "`validation_data` must be `(x, y)`, or batches of such pairs. "
                f"Received: validation_data of type {type(data).__name__}"
            )
        x, y = data
    elif hasattr(data, "__next__"):
        raise ValueError(
            "`validation_data` must be data that can be read again for every "
            f"candidate. Received: validation_data={data}"
        )
    bar = keras.utils.Progbar(
        len(CANDIDATES),
        verbose=verbose,
        stateful_metrics=("prior_precision", "nll"),
        unit_name="prior",
    )
    losses = []
    for i, delta in enumerate(CANDIDATES):
        prediction = predict(
            model,
            x,
            posterior.with_prior_precision(delta),
            samples=DEFAULT_SAMPLES,
            seed=seed,
            batch_size=batch_size,
            keep_samples="task" not in options,  # for densities of numbers
            verbose=0,
            options=PredictOptions(**options),
        )
        if "moments" in options and y is not None:
            (y,) = keras.tree.flatten(y)  # `moments` makes one prediction
        reports = keras.tree.flatten(evaluate(prediction, y))
        losses.append(sum(map(_mean_nll, reports)))
        bar.update(i + 1, [("prior_precision", delta), ("nll", losses[-1])])
    best = int(np.nanargmin(losses))
    if best in (0, len(losses) - 1):
        warnings.warn(
            "The best prior precision is at the end of the search range, "
            f"{CANDIDATES[0]:g} to {CANDIDATES[-1]:g}. Try other values with "
            "`with_prior_precision`. "
            f"Received: prior_precision={CANDIDATES[best]:g}",
            stacklevel=4,
        )
    return float(CANDIDATES[best])


def _mean_nll(report):
    """Returns the mean negative log-likelihood of one output."""
    if isinstance(report, RegressionReport):
        return -report.log_likelihood
    return report.nll
