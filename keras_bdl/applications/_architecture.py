"""Architectures of residual networks as tables of numbers."""

import dataclasses

from keras_bdl._arguments import check_count


@dataclasses.dataclass(frozen=True)
class Convolution:
    """One convolution of a residual branch.

    Attributes:
        kernel_size: Height and width of its filters.
        expansion: Number of its filters, as a multiple of the width of the
            stage.
        strided: Whether this convolution has the strides of the stage.
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

    Attributes:
        blocks: Number of blocks.
        width: Number of filters, as a multiple of the filters of the network.
        strides: Strides of the first block.
    """

    blocks: int
    width: int
    strides: int


@dataclasses.dataclass(frozen=True)
class Stem:
    """The layers before the first block.

    Attributes:
        kernel_size: Height and width of the filters.
        strides: Strides of the convolution.
        pool_size: Height and width of the windows of a max pooling with
            strides 2, or `None` for no pooling.
        scale: Initial scale of the filters.
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
        """Returns the architecture of this depth for small images.

        Args:
            depth: 6n + 2, for three stages of n blocks with two convolutions
                each, or 9n + 2 for bottlenecks with three convolutions.
            branch: The convolutions in the branch of every block. Defaults to
                `BASIC`.
        """
        blocks = blocks_of_depth(depth, 3 * len(branch), 2)
        return cls(
            Stem(3),
            branch,
            (Stage(blocks, 1, 1), Stage(blocks, 2, 2), Stage(blocks, 4, 2)),
        )


def blocks_of_depth(depth: int, step: int, rest: int) -> int:
    """Returns n for a depth of the form `step` n + `rest`.

    Args:
        depth: Number of layers with weights.
        step: Number of layers in one block of every stage.
        rest: Number of layers outside the blocks.
    """
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
