"""Numbers and order of layers of all residual networks.

`ResNet`, `PreActResNet` and `ResNetPlusPlus` differ in their blocks.
"""

import dataclasses
from collections.abc import Callable
from typing import Any
from typing import TypedDict

import keras

from keras_bdl._aliases import Activation
from keras_bdl._arguments import check_count


class NetworkOptions(TypedDict, total=False):
    """The arguments that `keras_bdl.applications.ResNet` documents."""

    activation: Activation
    include_top: bool
    classifier_activation: Activation
    name: str | None


@dataclasses.dataclass(frozen=True)
class Convolution:
    """One convolution of a residual branch.

    Its number of filters is a multiple, `expansion`, of the width of the stage.
    If `strided`, it has the strides of the stage.
    """

    kernel_size: int
    expansion: int = 1
    strided: bool = False


BASIC = (Convolution(3, strided=True), Convolution(3))
BOTTLENECK = (
    Convolution(1),
    Convolution(3, strided=True),
    Convolution(1, expansion=4),
)


@dataclasses.dataclass(frozen=True)
class Stage:
    """Successive blocks with one resolution and one width.

    The width is a multiple of the filters of the network. The first block has
    the strides.
    """

    blocks: int
    width: int
    strides: int


@dataclasses.dataclass(frozen=True)
class Stem:
    """The layers before the first block: a convolution and a max pooling.

    The pooling has strides 2. Without `pool_size`, there is none. `scale` is
    the initial scale of weight-normalised filters.
    """

    kernel_size: int
    strides: int = 1
    pool_size: int | None = None
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The numbers that define a residual network.

    Use it as the `depth` of `ResNet`, `PreActResNet` or `ResNetPlusPlus` for a
    network of your own.

    Attributes:
        stem: The layers before the first block.
        branch: The convolutions in the branch of every block.
        stages: The stages, in order.

    Example:

    ```python
    depth = keras_bdl.extend.Architecture.of_depth(8)
    model = keras_bdl.applications.ResNet(depth, (8, 8, 1), 10, filters=4)
    depth.depth  # 8
    ```
    """

    stem: Stem
    branch: tuple[Convolution, ...]
    stages: tuple[Stage, ...]

    @property
    def depth(self) -> int:
        """Number of layers with weights on the longest path."""
        blocks = sum(stage.blocks for stage in self.stages)
        return blocks * len(self.branch) + 2  # stem and classifier

    @classmethod
    def of_depth(
        cls, depth: int, branch: tuple[Convolution, ...] = BASIC
    ) -> "Architecture":
        """Returns the architecture of a depth for small images.

        The depth is 6n + 2, for three stages of n blocks with two convolutions
        each, or 9n + 2 for bottlenecks with three convolutions.
        """
        blocks = blocks_of_depth(depth, 3 * len(branch), 2)
        return cls(
            Stem(3),
            branch,
            (Stage(blocks, 1, 1), Stage(blocks, 2, 2), Stage(blocks, 4, 2)),
        )


def blocks_of_depth(depth: int, step: int, rest: int) -> int:
    """Returns n for a depth of the form `step` n + `rest`."""
    form = f"{step}n + {rest}"
    check_count("depth", depth)
    blocks = (depth - rest) // step
    if blocks < 1 or depth != step * blocks + rest:
        below = step * max(blocks, 1) + rest
        raise ValueError(
            f"`depth` must be of the form {form}. The nearest depths are "
            f"{below} and {below + step}. Received: depth={depth}"
        )
    return blocks


RESNET_18 = Architecture(
    Stem(3),
    BASIC,
    (Stage(2, 1, 1), Stage(2, 2, 2), Stage(2, 4, 2), Stage(2, 8, 2)),
)
RESNET_50 = Architecture(
    # The maximum of nine standard normal values has the mean square 2.5626.
    # With this scale, the mean square after the pooling is 1.
    Stem(7, strides=2, pool_size=3, scale=2.5626**-0.5),
    BOTTLENECK,
    (Stage(3, 1, 1), Stage(4, 2, 2), Stage(6, 4, 2), Stage(3, 8, 2)),
)
SMALL_IMAGES = RESNET_18.stem
IMAGENET = Stem(7, strides=2, pool_size=3)


def architecture_of(depth: int | Architecture) -> Architecture:
    """Returns the architecture that the argument `depth` of a network means."""
    if isinstance(depth, Architecture):
        return depth
    return Architecture.of_depth(depth)


def residual_stages(
    x: Any, architecture: Architecture, filters: int, block: Callable
) -> Any:
    """Applies the pooling of the stem, if present, and all blocks.

    `block` takes x, the width of the stage, the strides, whether the block
    changes the shape, and a name.
    """
    x = stem_pooling(x, architecture.stem)
    for i, stage in enumerate(architecture.stages, start=1):
        width = filters * stage.width
        outputs = width * architecture.branch[-1].expansion
        for j in range(1, stage.blocks + 1):
            strides = stage.strides if j == 1 else 1
            project = strides != 1 or x.shape[-1] != outputs
            x = block(x, width, strides, project, f"stage{i}_block{j}")
    return x


def stem_pooling(x: Any, stem: Stem) -> Any:
    """Applies the pooling of the stem, if present."""
    if not stem.pool_size:
        return x
    return keras.layers.MaxPooling2D(
        stem.pool_size, strides=2, padding="same", name="stem_pool"
    )(x)


def classifier(x: Any, classes: int, activation: Activation) -> Any:
    """Applies global average pooling, then a dense layer."""
    x = keras.layers.GlobalAveragePooling2D(name="avg_pool")(x)
    return keras.layers.Dense(classes, activation, name="predictions")(x)


def convolution(
    x: Any, filters: int, size: int, strides: int, name: str
) -> Any:
    """Applies a convolution without bias, for networks with BatchNorm."""
    return keras.layers.Conv2D(
        filters,
        size,
        strides,
        "same",
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )(x)


def activated(x: Any, activation: Activation, name: str) -> Any:
    """Applies BatchNorm, then an activation."""
    x = keras.layers.BatchNormalization(name=f"{name}_norm")(x)
    return keras.layers.Activation(activation, name=f"{name}_activation")(x)
