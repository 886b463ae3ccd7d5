"""The content of a recipe file."""

import dataclasses
import itertools
import random
import tomllib
from pathlib import Path

import arguments
import scales
import settings
from typed import record

FOLDER = Path(__file__).parent / "recipes"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One row of a table, or one curve of a figure.

    Attributes:
        paper: Name of the paper.
        data: Name of the training data.
        network: Name of the network.
        method: Name of the method, one of `methods.METHODS`.
        options: Settings that replace those of the method, as sorted pairs of
            name and value.
        test: Name of the test data. Defaults to `""`, the test set of `data`.
    """

    paper: str
    data: str
    network: str
    method: str
    options: tuple[tuple[str, object], ...] = ()
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
            shared: Pairs of name and value to leave out.
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
        title: The title of the table or figure.
        show: Arguments of the modules of `show` that make the table or figure,
            by name of the module.
        cells: The cells that the table or figure shows.
        ood: Names of the out-of-distribution sets.
        scale: One of `scales.SCALES`.
    """

    name: str
    title: str
    show: dict[str, object]
    cells: tuple[Cell, ...]
    ood: tuple[str, ...]
    scale: str

    @property
    def paper(self):
        """Name of the paper."""
        return self.name.split("/")[0]

    def heading(self, words=""):
        """Returns the heading of a figure.

        Args:
            words: Text after the title. Defaults to `""`.
        """
        lines = [f"{self.title}{words}"]
        if self.scale in scales.STANDS_FOR:
            lines.append(f"({scales.STANDS_FOR[self.scale]})")
        return "\n".join(lines)


def names(scale=None):
    """Returns the names of recipes, in the order of each paper.

    Args:
        scale: Selects the recipes that have this scale. Defaults to `None`,
            all recipes.
    """
    paths = FOLDER.glob("*/*.toml")
    found = ((p.parent.name, _number(p.stem), p.stem) for p in paths)
    every = [f"{paper}/{item}" for paper, _, item in sorted(found)]
    return [
        name
        for name in every
        if scale is None
        or scale in scales.of(_file(name), f"recipes/{name}.toml")
    ]


@dataclasses.dataclass(frozen=True)
class _Head:
    """The keys that a recipe of any kind may have.

    All other keys, apart from `cells`, are arguments of the modules in `show`.
    """

    title: str
    show: tuple[str, ...]
    ood: tuple[str, ...] = ()
    scales: tuple[str, ...] = scales.USUAL


@dataclasses.dataclass(frozen=True)
class _Cells:
    """A table `[[cells]]`: lists stand for all their combinations.

    Attributes:
        data: Names of training data.
        network: Names of networks.
        method: Names of methods.
        test: Names of test data. Defaults to `("",)`, the test set of `data`.
        draw: Number of combinations of the varied settings. They are drawn at
            random, the same for all networks and methods. Defaults to `None`,
            all combinations.
    """

    data: tuple[str, ...]
    network: tuple[str, ...]
    method: tuple[str, ...]
    test: tuple[str, ...] = ("",)
    draw: int | None = None


def load(name, scale):
    """Reads a recipe.

    Args:
        name: `"<paper>/<item>"`.
        scale: One of `scales.SCALES`. A table of cells may be for some scales
            only, and a setting may have a value for each scale.
    """
    if name not in names():
        raise SystemExit(
            f"There is no recipe {name!r}. `--list` prints all recipes."
        )
    return read(name, _file(name), scale)


def _file(name):
    """Returns the tables of the file of a recipe."""
    path = FOLDER / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def read(name, content, scale):
    """Returns a recipe made from the content of its file.

    Args:
        name: `"<paper>/<item>"`.
        content: The tables of the file.
        scale: One of `scales.SCALES`.
    """
    where = f"recipes/{name}.toml"
    content = dict(content)
    cells, known = [], scales.of(content, where)
    for number, table in enumerate(content.pop("cells", ()), 1):
        place = f"{where}, [[cells]] number {number}"
        if scale in scales.of(table, place, known):
            cells += _cells(name.split("/")[0], table, scale, place)
    content = _at_scale(content, scale)
    own = {f.name: f for f in dataclasses.fields(_Head)}
    head = {key: content.pop(key) for key in own if key in content}
    if "show" in head:
        head["show"] = _list(head["show"])
    head = record(_Head, head, where)
    return Recipe(
        name,
        title=head.title,
        show=arguments.by_module(head.show, content, where),
        cells=tuple(dict.fromkeys(cells)),
        ood=head.ood,
        scale=scale,
    )


def _cells(paper, table, scale, where):
    """Yields all combinations of a table of cells."""
    table = {key: value for key, value in table.items() if key != "scales"}
    for key in ("vary", "with"):
        if not isinstance(table.setdefault(key, {}), dict):
            raise SystemExit(
                f"{where}: `{key}` must be a table of settings. "
                f"Received: {key}={table[key]!r}"
            )
    vary = _at_scale(table.pop("vary"), scale)
    fixed = _at_scale(table.pop("with"), scale)
    for name, values in vary.items():
        if not _many(values):
            raise SystemExit(
                f"{where}: `vary` must list the values of `{name}`. "
                f"Received: {name}={values!r}"
            )
    if scale == "smoke":
        vary = {k: values[:1] for k, values in vary.items()}
    varied = [
        _options(vary, values) for values in itertools.product(*vary.values())
    ]
    table = {
        k: _list(v) if k != "draw" else v
        for k, v in _at_scale(table, scale).items()
    }
    table = record(_Cells, table, where)
    if table.draw is not None:
        varied = _drawn(varied, table.draw)
    # At `smoke`, all sets are the same digits, and all networks the same.
    few = slice(1) if scale == "smoke" else slice(None)
    for data, network, method, test in itertools.product(
        table.data[few], table.network[few], table.method, table.test
    ):
        for options in varied:
            options = settings.check_options(fixed | options, where)
            pairs = tuple(sorted(options.items()))
            yield Cell(paper, data, network, method, pairs, test)


def _at_scale(table, scale):
    return {key: scales.value_at(value, scale) for key, value in table.items()}


def _options(names, values):
    """Returns values by name; a key may name several settings at once."""
    found = {}
    for name, value in zip(names, values, strict=True):
        keys = name.split(", ")
        of_keys = value if len(keys) > 1 else [value]
        found |= dict(zip(keys, of_keys, strict=True))
    return found


def _drawn(combinations, count):
    """Returns `count` random combinations, in the order of `combinations`."""
    # Uses `random()`, the only function of `random` that returns the same
    # numbers for a seed in every version of Python.
    rng = random.Random(0)
    order = sorted((rng.random(), i) for i in range(len(combinations)))
    return [combinations[i] for i in sorted(i for _, i in order[:count])]


def in_words(value):
    """Returns the value of a setting as text."""
    if isinstance(value, float):
        return f"{value:g}"
    return " to ".join(map(in_words, value)) if _many(value) else str(value)


def _many(value):
    return isinstance(value, (list, tuple))


def _list(value):
    return value if _many(value) else [value]


def _number(item):
    """Returns a key that sorts tables before figures, by their numbers."""
    digits = "".join(filter(str.isdigit, item))
    return not item.startswith("table"), int(digits or 0)
