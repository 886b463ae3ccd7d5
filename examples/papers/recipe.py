"""What a recipe file says."""

import dataclasses
import itertools
import random
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent / "recipes"
SCALES = ("paper", "small", "smoke")
# What a figure says of the names of data and networks in it.
STANDS_FOR = {
    "small": "in small: digits and small networks under these names",
    "smoke": "a few digits, to see that it runs",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One row of a table, or one curve of a figure.

    Attributes:
        paper: The paper.
        data: What the network learns.
        network: The network.
        method: How it learns and predicts, one of `methods.METHODS`.
        options: Settings that differ from those of the method, as sorted
            pairs.
        test: What it is tested on; `""` for the test set of `data`.
    """

    paper: str
    data: str
    network: str
    method: str
    options: tuple = ()
    test: str = ""

    @property
    def where(self):
        """Data and network, in words."""
        data = f"{self.data} -> {self.test}" if self.test else self.data
        return f"{data}, {self.network}"

    @property
    def label(self):
        """The method with its options, in words."""
        return self.label_without(())

    def label_without(self, shared):
        """Returns the label without some of the options.

        Args:
            shared: Pairs that are left out.
        """
        words = [
            f"{key} = {in_words(value)}"
            for key, value in self.options
            if (key, value) not in shared
        ]
        return ", ".join([self.method, *words])


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A table or a figure of a paper.

    Attributes:
        name: `"<paper>/<item>"`.
        title: What it shows.
        show: Names of the modules in `show/` that make the table or figure.
        cells: What is trained for it.
        ood: Names of the sets that are out of distribution.
        arguments: What `show` is told besides, at this scale.
        scale: The scale.
    """

    name: str
    title: str
    show: tuple[str, ...]
    cells: tuple[Cell, ...]
    ood: tuple[str, ...]
    arguments: dict
    scale: str

    @property
    def paper(self):
        """The paper."""
        return self.name.split("/")[0]

    def heading(self, words=""):
        """Returns what stands above a figure.

        Args:
            words: What is to follow the title. Defaults to `""`.
        """
        lines = [f"{self.title}{words}"]
        if self.scale in STANDS_FOR:
            lines.append(f"({STANDS_FOR[self.scale]})")
        return "\n".join(lines)


def names():
    """Returns the names of all recipes, those of a paper in its order."""
    paths = FOLDER.glob("*/*.toml")
    found = ((p.parent.name, _number(p.stem), p.stem) for p in paths)
    return [f"{paper}/{item}" for paper, _, item in sorted(found)]


def load(name, scale):
    """Reads a recipe.

    Args:
        name: `"<paper>/<item>"`.
        scale: One of `SCALES`. A table of cells may be for some of them only,
            and a setting may have a value for each.
    """
    known = names()
    if name not in known:
        raise SystemExit(
            f"There is no recipe {name!r}: `--list` shows those that there are."
        )
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    cells = []
    for table in content.pop("cells", []):
        if scale in table.get("scales", SCALES):
            cells += _cells(name.split("/")[0], table, scale)
    return Recipe(
        name,
        title=content.pop("title"),
        show=tuple(_list(content.pop("show"))),
        cells=tuple(dict.fromkeys(cells)),
        ood=tuple(at_scale(content.pop("ood", ()), scale)),
        arguments={k: at_scale(v, scale) for k, v in content.items()},
        scale=scale,
    )


def _cells(paper, table, scale):
    """All combinations of what a table of cells lists.

    With `draw`, so many combinations of what varies, drawn at random and the
    same for all networks and methods.
    """
    vary = {k: at_scale(v, scale) for k, v in table.get("vary", {}).items()}
    if scale == "smoke":
        vary = {k: values[:1] for k, values in vary.items()}
    fixed = {k: at_scale(v, scale) for k, v in table.get("with", {}).items()}
    varied = [
        _options(vary, values) for values in itertools.product(*vary.values())
    ]
    if "draw" in table:
        varied = _drawn(varied, table["draw"])
    for data, network, method, test in itertools.product(
        *(
            _list(at_scale(table.get(key, ""), scale))
            for key in ("data", "network", "method", "test")
        )
    ):
        for options in varied:
            options = fixed | options
            pairs = tuple(sorted((k, _frozen(v)) for k, v in options.items()))
            yield Cell(paper, data, network, method, pairs, test)


def _options(names, values):
    """Values by name; a key may name several settings, and have lists."""
    found = {}
    for name, value in zip(names, values, strict=True):
        keys = name.split(", ")
        of_keys = value if len(keys) > 1 else [value]
        found |= dict(zip(keys, of_keys, strict=True))
    return found


def _drawn(combinations, count):
    """Some of them, in their order."""
    # Of a seed, Python promises the numbers of `random` alone, in any version.
    rng = random.Random(0)
    order = sorted((rng.random(), i) for i in range(len(combinations)))
    return [combinations[i] for i in sorted(i for _, i in order[:count])]


def at_scale(value, scale):
    """Returns the value for a scale, of a setting that may have several.

    Args:
        value: The value; or a table of one for each scale, in which `smoke`
            is that of `small` unless it has its own.
        scale: One of `SCALES`.
    """
    if not (isinstance(value, dict) and value.keys() <= set(SCALES)):
        return value
    if scale == "smoke" and "smoke" not in value:
        scale = "small"
    return value[scale]


def in_words(value):
    """Returns a setting as one reads it."""
    if isinstance(value, float):
        return f"{value:g}"
    return " to ".join(map(in_words, value)) if _many(value) else str(value)


def _many(value):
    return isinstance(value, (list, tuple))


def _list(value):
    return value if _many(value) else [value]


def _frozen(value):
    return tuple(map(_frozen, value)) if _many(value) else value


def _number(item):
    """Tables before figures, by their numbers."""
    digits = "".join(filter(str.isdigit, item))
    return not item.startswith("table"), int(digits or 0)
