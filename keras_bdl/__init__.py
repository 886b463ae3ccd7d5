"""Bayesian deep learning for Keras 3: networks that know when they don't know.

Every method yields a posterior, a distribution over the weights of a model.
`predict` averages predictions over the posterior, and `evaluate` reports how
good the predictions are.
`posterior_of` returns the posterior that a trained model holds.

Methods:

    a trained network          fit_laplace
    any training, cheaply      SWA, SWAG (callbacks)
    several trained networks   posteriors.Ensemble, posteriors.Mixture
    dropout in the network     posteriors.MCDropout, layers.MCDropout
    a learned Gaussian         VOGN, OGN, IVON, NoisyKFAC, KFAC (optimizers)
    samples, slow and exact    ATMC, SGNHT, SGHMC, SGLD (optimizers)
    layers with distributions  layers.MeanField*, layers.Radial*, convert
    no samples in training     objectives.TaylorVI
    regressions                likelihoods.Gaussian

Models:

    Model, Sequential   Keras models that count the data and hold a posterior
    convert             makes a Bayesian model of any Keras model
    PosteriorPredictive holds posterior samples, to save, export and serve

Folders:

    applications   networks of the papers   layers         variational layers
    callbacks      collect, save, measure   likelihoods    losses, regression
    conformal      sets with a coverage     metrics        during `fit`
    continual      task after task          objectives     TaylorVI, MAP
    curvature      per-example gradients    optimizers     samplers, VOGN
    datasets       data of the papers       plots          pictures
    diagnostics    chains, gradients, loss  posteriors     learned weights
    distribute     several devices          prediction     predictions
    distributions  of single tensors        priors         assumed weights
    evaluation     reports on predictions   schedules      of step sizes
    extend         methods of your own
"""

from keras import backend as _of_keras

if _of_keras.backend() != "tensorflow":
    raise ImportError(
        "`keras_bdl` runs on the TensorFlow backend of Keras, and this process "
        "uses another: set KERAS_BACKEND=tensorflow before Keras is imported. "
        f"Received: backend={_of_keras.backend()}"
    )

from keras_bdl import applications  # noqa: E402
from keras_bdl import callbacks  # noqa: E402
from keras_bdl import conformal  # noqa: E402
from keras_bdl import continual  # noqa: E402
from keras_bdl import curvature  # noqa: E402
from keras_bdl import datasets  # noqa: E402
from keras_bdl import diagnostics  # noqa: E402
from keras_bdl import distribute  # noqa: E402
from keras_bdl import distributions  # noqa: E402
from keras_bdl import evaluation  # noqa: E402
from keras_bdl import extend  # noqa: E402
from keras_bdl import layers  # noqa: E402
from keras_bdl import likelihoods  # noqa: E402
from keras_bdl import metrics  # noqa: E402
from keras_bdl import objectives  # noqa: E402
from keras_bdl import optimizers  # noqa: E402
from keras_bdl import plots  # noqa: E402
from keras_bdl import posteriors  # noqa: E402
from keras_bdl import prediction  # noqa: E402
from keras_bdl import priors  # noqa: E402
from keras_bdl import schedules  # noqa: E402
from keras_bdl._conversion import convert  # noqa: E402
from keras_bdl._laplace import fit_laplace  # noqa: E402
from keras_bdl._models import Model  # noqa: E402
from keras_bdl._models import Sequential  # noqa: E402
from keras_bdl.callbacks import SWA  # noqa: E402
from keras_bdl.callbacks import SWAG  # noqa: E402
from keras_bdl.evaluation._evaluate import evaluate  # noqa: E402
from keras_bdl.optimizers import ATMC  # noqa: E402
from keras_bdl.optimizers import IVON  # noqa: E402
from keras_bdl.optimizers import KFAC  # noqa: E402
from keras_bdl.optimizers import OGN  # noqa: E402
from keras_bdl.optimizers import SGHMC  # noqa: E402
from keras_bdl.optimizers import SGLD  # noqa: E402
from keras_bdl.optimizers import SGNHT  # noqa: E402
from keras_bdl.optimizers import VOGN  # noqa: E402
from keras_bdl.optimizers import NoisyKFAC  # noqa: E402
from keras_bdl.posteriors._held_posterior import posterior_of  # noqa: E402
from keras_bdl.prediction._posterior_predictive import PosteriorPredictive  # noqa: E402
from keras_bdl.prediction._predict import predict  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "ATMC",
    "IVON",
    "KFAC",
    "OGN",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SWA",
    "SWAG",
    "VOGN",
    "Model",
    "NoisyKFAC",
    "PosteriorPredictive",
    "Sequential",
    "applications",
    "callbacks",
    "conformal",
    "continual",
    "convert",
    "curvature",
    "datasets",
    "diagnostics",
    "distribute",
    "distributions",
    "evaluate",
    "evaluation",
    "extend",
    "fit_laplace",
    "layers",
    "likelihoods",
    "metrics",
    "objectives",
    "optimizers",
    "plots",
    "posterior_of",
    "posteriors",
    "predict",
    "prediction",
    "priors",
    "schedules",
]
