"""Residual networks as tables of numbers."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Convolution:
    """One of the convolutions in a residual branch.

    Attributes:
        kernel_size: Height and width of its filters.
        expansion: Its filters, as a multiple of the width of the stage.
        strided: Whether it is the one that takes the strides of the stage.
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
    """Blocks that work at one resolution.

    Attributes:
        blocks: How many.
        width: Filters, as a multiple of those of the network.
        strides: Strides of the first block.
    """

    blocks: int
    width: int
    strides: int


@dataclasses.dataclass(frozen=True)
class Stem:
    """What comes before the first block.

    Attributes:
        kernel_size: Height and width of the filters.
        strides: Strides of the convolution.
        pool_size: Height and width of the windows of a max pooling with
            strides 2, or `None`: no pooling.
        scale: Initial scale of the filters.
    """

    kernel_size: int
    strides: int = 1
    pool_size: int | None = None
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The numbers of a residual network.

    Attributes:
        stem: What comes before the first block.
        branch: The convolutions in the branch of every block.
        stages: The stages, in their order.
    """

    stem: Stem
    branch: tuple[Convolution, ...]
    stages: tuple[Stage, ...]

    @property
    def depth(self):
        """Layers with weights on the longest path."""
        blocks = sum(stage.blocks for stage in self.stages)
        return blocks * len(self.branch) + 2  # stem and classifier

    @classmethod
    def of_depth(cls, depth: int, branch=BASIC):
        """Returns the network for small images that has this depth.

        Args:
            depth: 6n + 2, with n blocks of two convolutions in each of three
                stages; 9n + 2 for bottlenecks, of three convolutions.
            branch: The convolutions in the branch of every block. Defaults to
                `BASIC`.
        """
        blocks = blocks_of_depth(depth, 3 * len(branch), 2)
        return cls(
            Stem(3),
            branch,
            (Stage(blocks, 1, 1), Stage(blocks, 2, 2), Stage(blocks, 4, 2)),
        )


def blocks_of_depth(depth: int, step: int, rest: int):
    """Returns n for a depth of the form `step` n + `rest`.

    Args:
        depth: Layers with weights.
        step: Of them, those of one block in every stage.
        rest: Of them, those outside of the blocks.
    """
    form = f"{step}n + {rest}"
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise ValueError(
            f"`depth` must be an integer of the form {form}, such as "
            f"{step + rest} or {3 * step + rest}. Received: depth={depth!r}"
        )
    blocks = (depth - rest) // step
    if blocks < 1 or depth != step * blocks + rest:
        below = step * max(blocks, 1) + rest
        raise ValueError(
            f"`depth` must be of the form {form}; the nearest are "
            f"{below} and {below + step}. Received: depth={depth}"
        )
    return blocks


RESNET_18 = Architecture(
    Stem(3),
    BASIC,
    (Stage(2, 1, 1), Stage(2, 2, 2), Stage(2, 4, 2), Stage(2, 8, 2)),
)
RESNET_50 = Architecture(
    # The maximum of nine standard normal values has the mean square 2.5626;
    # the scale brings it to one.
    Stem(7, strides=2, pool_size=3, scale=2.5626**-0.5),
    BOTTLENECK,
    (Stage(3, 1, 1), Stage(4, 2, 2), Stage(6, 4, 2), Stage(3, 8, 2)),
)
