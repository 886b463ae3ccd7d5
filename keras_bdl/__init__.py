import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "`keras_bdl` runs on the TensorFlow backend of Keras, and this process "
        "uses another: set KERAS_BACKEND=tensorflow before Keras is imported. "
        f"Received: backend={keras.backend.backend()}"
    )

from keras_bdl import applications  # noqa: E402
from keras_bdl import callbacks  # noqa: E402
from keras_bdl import continual  # noqa: E402
from keras_bdl import curvature  # noqa: E402
from keras_bdl import datasets  # noqa: E402
from keras_bdl import diagnostics  # noqa: E402
from keras_bdl import distribute  # noqa: E402
from keras_bdl import distributions  # noqa: E402
from keras_bdl import evaluation  # noqa: E402
from keras_bdl import layers  # noqa: E402
from keras_bdl import likelihoods  # noqa: E402
from keras_bdl import metrics  # noqa: E402
from keras_bdl import models  # noqa: E402
from keras_bdl import objectives  # noqa: E402
from keras_bdl import optimizers  # noqa: E402
from keras_bdl import plots  # noqa: E402
from keras_bdl import posteriors  # noqa: E402
from keras_bdl import prediction  # noqa: E402
from keras_bdl import priors  # noqa: E402
from keras_bdl import schedules  # noqa: E402
from keras_bdl import training  # noqa: E402
from keras_bdl.callbacks import SWA  # noqa: E402
from keras_bdl.callbacks import SWAG  # noqa: E402
from keras_bdl.evaluation import evaluate  # noqa: E402
from keras_bdl.laplace import fit_laplace  # noqa: E402
from keras_bdl.models import Model  # noqa: E402
from keras_bdl.models import Sequential  # noqa: E402
from keras_bdl.models import convert  # noqa: E402
from keras_bdl.optimizers import ATMC  # noqa: E402
from keras_bdl.optimizers import IVON  # noqa: E402
from keras_bdl.optimizers import KFAC  # noqa: E402
from keras_bdl.optimizers import OGN  # noqa: E402
from keras_bdl.optimizers import SGHMC  # noqa: E402
from keras_bdl.optimizers import SGLD  # noqa: E402
from keras_bdl.optimizers import SGNHT  # noqa: E402
from keras_bdl.optimizers import VOGN  # noqa: E402
from keras_bdl.optimizers import NoisyKFAC  # noqa: E402
from keras_bdl.prediction import predict  # noqa: E402

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
    "Sequential",
    "applications",
    "callbacks",
    "continual",
    "convert",
    "curvature",
    "datasets",
    "diagnostics",
    "distribute",
    "distributions",
    "evaluate",
    "evaluation",
    "fit_laplace",
    "layers",
    "likelihoods",
    "metrics",
    "models",
    "objectives",
    "optimizers",
    "plots",
    "posteriors",
    "predict",
    "prediction",
    "priors",
    "schedules",
    "training",
]
