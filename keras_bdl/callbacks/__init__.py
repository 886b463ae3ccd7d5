"""Callbacks of `fit` that collect posteriors, save runs and measure training.

The posteriors are those of `keras_bdl.posteriors`. Measurements after training
are in `keras_bdl.diagnostics`.

All callbacks use the same arguments for times. Epochs are counted from 0.

    start_epoch   first epoch in which the callback acts
    end_epoch     first epoch in which the callback no longer acts
    every, unit   the callback acts once in `every` epochs or steps; `unit` is
                  `"epoch"` or `"step"`

If a callback has no argument `unit`, `every` counts epochs. `every` of
`SampleCollector` may also be a schedule with cycles.
"""

from keras_bdl.callbacks._annealing import KLAnnealing
from keras_bdl.callbacks._annealing import PretrainMeans
from keras_bdl.callbacks._chain_diagnostics import ChainDiagnostics
from keras_bdl.callbacks._checkpoint import Checkpoint
from keras_bdl.callbacks._early_stopping import EarlyStopping
from keras_bdl.callbacks._ensemble_validation import EnsembleValidation
from keras_bdl.callbacks._gradient_variance import GradientVariance
from keras_bdl.callbacks._sample_collector import SampleCollector
from keras_bdl.callbacks._swag import SWA
from keras_bdl.callbacks._swag import SWAG

__all__ = [
    "SWA",
    "SWAG",
    "ChainDiagnostics",
    "Checkpoint",
    "EarlyStopping",
    "EnsembleValidation",
    "GradientVariance",
    "KLAnnealing",
    "PretrainMeans",
    "SampleCollector",
]
