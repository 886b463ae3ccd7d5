"""Estimates the time of a step from the facts of XLA about its program."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Chip:
    """Published numbers of a chip, or of one core where it has two.

    Attributes:
        flops: Multiplications and additions in a second, in bfloat16.
        bandwidth: Bytes from and to memory in a second.
        memory: Bytes of memory.
        link: Bytes that go through one link in one direction in a second.
        cores: How many of these a chip has, each a device of its own.
    """

    flops: float
    bandwidth: float
    memory: float
    link: float
    cores: int = 1


CHIPS = {
    # cloud.google.com/tpu/docs/v5e: 400 GB/s through 4 links, both ways.
    "v5e": Chip(197e12, 819e9, 16 * 2**30, 50e9),
    # cloud.google.com/tpu/docs/v3; links as in "A Domain Specific
    # Supercomputer for Training Deep Neural Networks": 656 Gbit/s.
    "v3": Chip(61.5e12, 450e9, 16 * 2**30, 82e9 / 2, cores=2),
}


def chip_of(topology: str):
    """Returns the `Chip` of a topology, such as `"v5e:2x2"`."""
    kind = topology.partition(":")[0]
    if kind not in CHIPS:
        raise ValueError(
            f"`topology` must begin with one of {', '.join(CHIPS)}, such as "
            f'"v5e:2x2". Received: topology={topology!r}'
        )
    return CHIPS[kind]


def devices_in(topology: str):
    """Returns how many devices a topology has."""
    sides = topology.partition(":")[2].split("x")
    if not all(side.isdigit() for side in sides):
        raise ValueError(
            '`topology` must be a kind and its sides, such as "v5e:2x2". '
            f"Received: topology={topology!r}"
        )
    return math.prod(map(int, sides)) * chip_of(topology).cores


def times(found: dict, topology: str, kind: str | None = None):
    """Returns seconds of arithmetic, of memory and of links, and of a step.

    An all-reduce of B bytes over n devices in a ring that is used in both
    directions takes

        2 (n - 1) / n  B / (2 link)                                       (1)

    and is thought to wait for all else, which goes on side by side.

    Args:
        found: What `compiling.compiled` returned.
        topology: What it was compiled for.
        kind: The kind of chip to think of. Defaults to `None`, that of the
            topology.
    """
    chip, devices = (
        CHIPS[kind] if kind else chip_of(topology),
        devices_in(topology),
    )
    arithmetic = found["flops"] / chip.flops
    memory = found["bytes"] / chip.bandwidth
    share = 2 * (devices - 1) / devices
    links = share * found["collective_bytes"] / (2 * chip.link)  # (1)
    return {
        "arithmetic": arithmetic,
        "memory": memory,
        "links": links,
        "step": max(arithmetic, memory) + links,
    }
