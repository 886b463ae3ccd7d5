"""Callbacks of `fit`: they collect posteriors, save runs and measure.

What they collect becomes a posterior of `keras_bdl.posteriors`; what is
measured after training is in `keras_bdl.diagnostics`.
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
