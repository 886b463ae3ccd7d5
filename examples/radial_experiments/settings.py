"""The data, lengths and variational layers of the experiments."""

import math

import keras

import keras_bdl as bdl

KINDS = {"mean-field": "MeanField", "Radial": "Radial"}
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
BATCH = 128
# Of a report on the gradient.
NUMBERS = ("variance", "variance_error", "snr")


class Run:
    """The data, and the length of each training."""

    def __init__(self, smoke, seeds):
        self.tasks = ("regression", "classification")
        self.channels, self.draws = 512, 20
        self.stddevs = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
        self.epochs, self.every = 60, 4
        self.rhos = (-6.0, -4.0, -2.0, 0.0)
        self.learning_rates = (0.03, 0.003, 0.0003)
        self.grid_epochs, self.seeds = 30, seeds
        self.convolutions = ((16, 1), (32, 2), (32, 1))  # filters and strides
        if smoke:
            self.tasks = ("classification",)
            self.channels, self.draws = 4, 3
            self.stddevs = (0.01, 1.0)
            self.epochs, self.every = 2, 1
            self.rhos, self.learning_rates = (-6.0, 0.0), (0.01,)
            self.grid_epochs, self.seeds = 1, 1
            self.convolutions = ((4, 2),)
        self.data = bdl.datasets.load("digits", classes=range(10), seed=0)


@keras.saving.register_keras_serializable("radial_experiments")
class RadialRho(keras.initializers.Initializer):
    """The rho with which a Radial tensor has the scale `softplus(rho)`.

    This is the rho of the paper. In our layers, `softplus(rho)` is the standard
    deviation of a weight, and the scale is `sqrt(D)` times as large.
    """

    def __init__(self, rho):
        self.rho = rho

    def __call__(self, shape, dtype=None):
        scale = math.log1p(math.exp(self.rho))
        stddev = scale / math.prod(shape) ** 0.5
        return keras.ops.full(shape, math.log(math.expm1(stddev)), dtype)

    def get_config(self):
        return {"rho": self.rho}


def layer(kind, of, *args, rho, **kwargs):
    start = RadialRho if kind == "Radial" else keras.initializers.Constant
    return getattr(bdl.layers, KINDS[kind] + of)(
        *args,
        kernel_initializer="he_normal",
        rho_initializer=start(rho),
        **kwargs,
    )


def net(run, kind, rho):
    """Returns a convolutional network that classifies ten digits."""
    common = {"padding": "same", "activation": "relu", "rho": rho}
    return bdl.Sequential(
        [
            keras.Input(run.data.input_shape),
            *(
                layer(kind, "Conv2D", filters, 3, strides=strides, **common)
                for filters, strides in run.convolutions
            ),
            keras.layers.Flatten(),
            layer(kind, "Dense", 10, rho=rho),
        ]
    )
