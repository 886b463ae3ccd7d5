"""The cases of `compile_check.py`: methods, networks, and pairs of them."""

import dataclasses
import fnmatch
import functools
from collections.abc import Callable

import keras

import keras_bdl as bdl
from keras_bdl.extend import SMALL_IMAGES


@dataclasses.dataclass(frozen=True)
class Method:
    """How a network is trained.

    Attributes:
        compiled: Takes a network, the number of training examples and
            options of the method, returns a compiled model.
        reduced: How many tensors as large as all trainable variables together
            the replicas add up in a training step; `None` for what is no
            such number.
    """

    compiled: Callable
    reduced: int | None = 1


@dataclasses.dataclass(frozen=True)
class Network:
    """A network and the size of its data.

    Attributes:
        make: Makes the network.
        dataset_size: Number of training examples.
        batch_size: Examples in a step of all chips together.
    """

    make: Callable
    dataset_size: int
    batch_size: int


def _loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _optimizer(make, samples=0, **defaults):
    """A method that is an optimizer."""

    def compiled(network, dataset_size, **options):
        options = {"dataset_size": dataset_size, **defaults, **options}
        network.compile(make(**options), _loss(), samples=samples)
        return network

    return compiled


def _sgd(dataset_size, learning_rate=0.05, momentum=0.9, **options):
    return keras.optimizers.SGD(learning_rate, momentum, **options)


def _converted(to, **defaults):
    """A method that is a kind of layers."""

    def compiled(network, dataset_size, learning_rate=1e-3, **options):
        options = {**defaults, **options}
        if to != "mc_dropout":
            options["dataset_size"] = dataset_size
        model = bdl.convert(network, to, **options)
        # `keras_bdl.predict` draws the masks of dropout.
        samples = 0 if to == "mc_dropout" else 1
        optimizer = keras.optimizers.Adam(learning_rate)
        model.compile(optimizer, _loss(), samples=samples)
        return model

    return compiled


def _objective(make, **defaults):
    """A method that is an objective."""

    def compiled(network, dataset_size, learning_rate=1e-3, **options):
        options = {"dataset_size": dataset_size, **defaults, **options}
        optimizer = keras.optimizers.Adam(learning_rate)
        network.compile(
            optimizer, _loss(), objective=make(**options), samples=1
        )
        return network

    return compiled


METHODS = {
    "sgd": Method(_optimizer(_sgd)),
    "atmc": Method(_optimizer(bdl.ATMC)),
    "sgnht": Method(_optimizer(bdl.SGNHT)),
    "sghmc": Method(_optimizer(bdl.SGHMC)),
    "sgld": Method(_optimizer(bdl.SGLD)),
    "mean_field": Method(_converted("mean_field")),
    "flipout": Method(_converted("mean_field", estimator="flipout")),
    "local": Method(_converted("mean_field", estimator="local")),
    "radial": Method(_converted("radial")),
    "mc_dropout": Method(_converted("mc_dropout", rate=0.1)),
    # The gradient, and the mean of the squares.
    "vogn": Method(_optimizer(bdl.VOGN, samples=1), reduced=2),
    "ogn": Method(_optimizer(bdl.OGN), reduced=2),
    "ivon": Method(_optimizer(bdl.IVON, samples=1), reduced=2),
    # The gradient, and the factors of the curvature of every layer. The costs
    # are those of a step that computes the factors.
    "kfac": Method(_optimizer(bdl.KFAC, curvature_every=1), reduced=None),
    "noisy_kfac": Method(
        _optimizer(bdl.NoisyKFAC, samples=1, curvature_every=1), reduced=None
    ),
    "sampled_vi": Method(
        _objective(bdl.objectives.SampledVI, covariance="scalar")
    ),
    "taylor_vi": Method(
        _objective(
            bdl.objectives.TaylorVI, covariance="scalar", temperature=0.1
        )
    ),
}


def _small():
    """A network that XLA compiles in seconds."""
    inputs = x = keras.Input((32, 32, 3))
    for filters in (8, 16):
        x = keras.layers.Conv2D(
            filters, 3, 2, padding="same", activation="softplus"
        )(x)
    x = keras.layers.Flatten()(x)
    return bdl.Model(inputs, keras.layers.Dense(10)(x))


def _resnet_18_for_small_images():
    return bdl.applications.ResNet18((32, 32, 3), 10, stem=SMALL_IMAGES)


def _vgg_of_the_radial_paper():
    return bdl.applications.VGG16((512, 512, 3), 2, filters=46)


IMAGENET = 1_281_167
NETWORKS = {
    "small": Network(_small, 50_000, 64),
    "resnet_plus_plus_50": Network(
        bdl.applications.ResNetPlusPlus50, IMAGENET, 1024
    ),
    "resnet_18": Network(bdl.applications.ResNet18, IMAGENET, 128),
    "resnet_18_cifar": Network(_resnet_18_for_small_images, 50_000, 128),
    "vgg_16_512": Network(_vgg_of_the_radial_paper, 44_594, 16),
    "preact_resnet_18": Network(
        functools.partial(
            bdl.applications.PreActResNet18, activation="softplus"
        ),
        50_000,
        128,
    ),
}

# The settings of the papers.
CASES = (
    "atmc/resnet_plus_plus_50",
    "vogn/resnet_18",
    "radial/vgg_16_512",
    "sgd/resnet_18_cifar",  # between the collections of SWAG
    "taylor_vi/preact_resnet_18",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A method and a network.

    Attributes:
        name: `"<method>/<network>"`, see `METHODS` and `NETWORKS`.
        batch_size: Of all chips together. Defaults to `None`, that of the
            network.
        policy: The dtype policy. Defaults to `"mixed_bfloat16"`.
    """

    name: str
    batch_size: int | None = None
    policy: str = "mixed_bfloat16"

    def __post_init__(self):
        method, _, network = self.name.partition("/")
        if method not in METHODS or network not in NETWORKS:
            raise ValueError(
                "`name` must be a method and a network, `<method>/<network>`, "
                f"with a method out of {', '.join(METHODS)} and a network out "
                f"of {', '.join(NETWORKS)}. Received: name={self.name!r}"
            )

    @property
    def method(self):
        """The `Method`."""
        return METHODS[self.name.partition("/")[0]]

    @property
    def network(self):
        """The `Network`."""
        return NETWORKS[self.name.partition("/")[2]]

    def batch_of(self, chips: int):
        """Returns how many examples one chip has in a step."""
        size = self.batch_size or self.network.batch_size
        if size % chips:
            raise ValueError(
                f"`batch_size` must be a multiple of the {chips} chips. "
                f"Received: batch_size={size}"
            )
        return size // chips

    def build(self):
        """Returns the compiled model."""
        network = self.network
        return self.method.compiled(network.make(), network.dataset_size)


def named(patterns):
    """Returns the names of the cases of some patterns, without repeats.

    Args:
        patterns: Such as `"vogn/small"`, or `"*/small"` for all methods.
    """
    names = [f"{m}/{n}" for m in METHODS for n in NETWORKS]
    found = {}
    for pattern in patterns:
        matches = fnmatch.filter(names, pattern)
        # A name that matches nothing is refused by `Case`.
        found |= dict.fromkeys(matches or [Case(pattern).name])
    return list(found)


if __name__ == "__main__":
    print("Cases of the papers:", *CASES, sep="\n  ")
    print("Methods:", *METHODS, sep="\n  ")
    print("Networks:", *NETWORKS, sep="\n  ")
