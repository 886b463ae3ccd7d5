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

from keras_bdl.callbacks.chain_diagnostics import ChainDiagnostics
from keras_bdl.callbacks.checkpoint import Checkpoint
from keras_bdl.callbacks.early_stopping import EarlyStopping
from keras_bdl.callbacks.gradient_variance import GradientVariance
from keras_bdl.callbacks.kl_annealing import KLAnnealing
from keras_bdl.callbacks.pretrain_means import PretrainMeans
from keras_bdl.callbacks.sample_collector import SampleCollector
from keras_bdl.callbacks.stateful_callback import StatefulCallback
from keras_bdl.callbacks.swa import SWA
from keras_bdl.callbacks.swag import SWAG

__all__ = [
    "SWA",
    "SWAG",
    "ChainDiagnostics",
    "Checkpoint",
    "EarlyStopping",
    "GradientVariance",
    "KLAnnealing",
    "PretrainMeans",
    "SampleCollector",
    "StatefulCallback",
]
