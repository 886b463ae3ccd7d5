"""The arguments that a recipe gives to a module of `show`."""

import dataclasses
from typing import Literal

from typed import record


@dataclasses.dataclass(frozen=True)
class NoArguments:
    """A module of `show` that takes no arguments."""


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Arguments of `show.calibration`.

    Attributes:
        num_bins: Number of bins of the confidence.
        curve: Draws accuracy against confidence in bins of equal `"width"` or
            equal `"mass"`. Defaults to `None`: draws the gap between the two,
            as the paper of SWAG does.
    """

    num_bins: int = 20
    curve: Literal["width", "mass"] | None = None


@dataclasses.dataclass(frozen=True)
class BySamples:
    """Arguments of `show.by_samples`.

    Attributes:
        target: Method of a cell. The text says when a chain is as accurate.
    """

    target: str


@dataclasses.dataclass(frozen=True)
class Continual:
    """Arguments of `show.continual`.

    Attributes:
        data: Name of the data.
        heads: Whether each task has a head of its own (`"multi"`).
        network: The paper's name of the network, which selects the epochs.
        epochs_of: Name of the data for which the paper prints the epochs.
            Defaults to `""`: the epochs are those of `continual_learning.py`.
    """

    data: str
    heads: Literal["multi", "single"]
    network: str
    epochs_of: str = ""


@dataclasses.dataclass(frozen=True)
class Dots:
    """Arguments of `show.dots`.

    Attributes:
        metric: Name of the metric, see `measures.of`.
        published_in: Name of the recipe whose table has the paper's numbers.
    """

    metric: str
    published_in: str


@dataclasses.dataclass(frozen=True)
class GradientScale:
    """Arguments of `show.gradient_scale`.

    Attributes:
        channels: Number of channels of the convolution.
    """

    channels: int


@dataclasses.dataclass(frozen=True)
class Regression:
    """Arguments of `show.regression`.

    Attributes:
        data: Names in `DATA` of `regression_experiments/data.py`, or of files
            `<name>.csv` in `--data-dir`, with one column for each input and
            the target in the last column.
        network: The paper's name of the network, which selects the settings.
    """

    data: tuple[str, ...]
    network: str


@dataclasses.dataclass(frozen=True)
class Robustness:
    """Arguments of `show.robustness`.

    Attributes:
        guessing: Largest area under the curve of a run that only guesses.
        good: Smallest area under the curve of a good run.
    """

    guessing: float
    good: float


@dataclasses.dataclass(frozen=True)
class Surface:
    """Arguments of `show.surface`.

    Attributes:
        points: Number of points on a ray.
        grid: Number of points on a side of a plane.
        images: Number of training images of which the loss is the mean.
            Defaults to `0`, all.
    """

    points: int = 21
    grid: int = 13
    images: int = 0


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Arguments of `show.sweep`.

    Attributes:
        metrics: Names of the metrics, see `measures.of`.
        along: Names of the settings on the horizontal axes.
        above: Label of an upper axis, and the factor from the lower axis to
            the upper one. Defaults to `None`, no upper axis.
    """

    metrics: tuple[str, ...]
    along: tuple[str, ...]
    above: tuple[str, float] | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """Arguments of `show.table`.

    Attributes:
        metrics: Names of the columns, see `measures.of`.
    """

    metrics: tuple[str, ...]


# Name of a module of `show` -> its arguments.
ARGUMENTS = {
    "by_samples": BySamples,
    "calibration": Calibration,
    "continual": Continual,
    "curves": NoArguments,
    "dots": Dots,
    "dynamics": NoArguments,
    "entropies": NoArguments,
    "gaps": NoArguments,
    "gradient_noise": NoArguments,
    "gradient_scale": GradientScale,
    "hessian": NoArguments,
    "regression": Regression,
    "robustness": Robustness,
    "surface": Surface,
    "sweep": Sweep,
    "table": Table,
}


def by_module(modules, table, where):
    """Returns the arguments of each module, by its name.

    Args:
        modules: Names of modules of `show`.
        table: The arguments of all these modules.
        where: Place of the table, for error messages.
    """
    found, known = {}, {}
    for module in modules:
        if module not in ARGUMENTS:
            raise SystemExit(
                f"{where}: `show` names modules of the folder `show`: "
                f"{', '.join(ARGUMENTS)}. Received: show={module!r}"
            )
        names = [field.name for field in dataclasses.fields(ARGUMENTS[module])]
        own = {name: table[name] for name in names if name in table}
        found[module] = record(ARGUMENTS[module], own, where)
        known |= dict.fromkeys(names)
    for name in table:
        if name not in known:
            raise SystemExit(
                f"{where}: the key `{name}` is unknown. Known keys: title, "
                f"show, cells, ood, scales"
                f"{''.join(f', {other}' for other in known)}."
            )
    return found
