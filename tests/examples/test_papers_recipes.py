"""How the files of the papers' recipes are read and checked."""

import ast
import dataclasses
import re
import sys
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
sys.path.insert(0, str(PAPERS))

import arguments  # noqa: E402
import lookup  # noqa: E402
import published  # noqa: E402
import recipe as recipes  # noqa: E402
import scales  # noqa: E402
import settings  # noqa: E402
import typed  # noqa: E402
from lookup import settings_of  # noqa: E402
from recipe import Cell  # noqa: E402


def content(**changes):
    """The tables of a recipe file."""
    cells = {
        "data": "cifar10",
        "network": "VGG-16",
        "method": "SWAG",
        "with": {"rank": 5},
        "vary": {"samples": [1, 3]},
    }
    table = {"title": "A title", "show": "table", "metrics": ["nll"]}
    cells |= changes.pop("cells", {})
    table |= {"cells": [cells]} | changes
    return {key: value for key, value in table.items() if value is not None}


def test_a_recipe_has_a_cell_for_each_combination():
    found = recipes.read("swag/table9", content(), "small")
    assert found.show == {"table": arguments.Table(metrics=("nll",))}
    assert [dict(cell.options) for cell in found.cells] == [
        {"rank": 5, "samples": 1},
        {"rank": 5, "samples": 3},
    ]


def test_only_tables_with_a_scale_count_at_this_scale():
    cells = content()["cells"][0]
    table = content(scales=["medium", "small"])
    table["cells"] = [cells, cells | {"scales": ["small"], "method": "SWA"}]
    found = {
        scale: {c.method for c in recipes.read("a/b", table, scale).cells}
        for scale in ("medium", "small", "paper")
    }
    assert found == {
        "medium": {"SWAG"},
        "small": {"SWAG", "SWA"},
        "paper": set(),
    }


def test_medium_and_smoke_take_the_value_of_small():
    table = {"paper": 1, "small": 2}
    found = {scale: scales.value_at(table, scale) for scale in scales.SCALES}
    assert found == {"paper": 1, "medium": 2, "small": 2, "smoke": 2}
    assert scales.value_at(table | {"medium": 3}, "medium") == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric": "nll"}, "the key `metric` is unknown. Known keys: title"),
        ({"metrics": "nll"}, "`metrics` must be a list, each value a string"),
        ({"metrics": [1]}, "Received: metrics=[1]"),
        ({"metrics": None}, "the key `metrics` is missing. It must be a list"),
        ({"title": None}, "the key `title` is missing. It must be a string"),
        ({"show": "tables"}, "`show` names modules of the folder `show`"),
        ({"ood": "noise"}, "`ood` must be a list, each value a string"),
        (
            {"cells": {"with": {"rnak": 5}}},
            "[[cells]] number 1: the key `rnak` is unknown. Known keys: epochs",
        ),
        (
            {"cells": {"with": {"rank": 5.5}}},
            "`rank` must be an integer. Received: rank=5.5",
        ),
        (
            {"cells": {"with": {"rank": True}}},
            "`rank` must be an integer. Received: rank=True",
        ),
        (
            {"cells": {"with": {"prior_variance": "small"}}},
            "`prior_variance` must be a number. Received: "
            "prior_variance='small'",
        ),
        (
            {"cells": {"vary": {"optimizer": ["SGD", "Adma"]}}},
            '`optimizer` must be one of "SGD", "Adam", "AMSGrad". Received: '
            "optimizer='Adma'",
        ),
        (
            {"cells": {"vary": {"samples": 3}}},
            "`vary` must list the values of `samples`. Received: samples=3",
        ),
        ({"cells": {"with": 5}}, "`with` must be a table of settings"),
        ({"cells": {"methods": "SWA"}}, "the key `methods` is unknown"),
        ({"cells": {"draw": "all"}}, "`draw` must be an integer"),
        ({"cells": {"scales": ["tiny"]}}, "`scales` must list some of paper"),
        ({"scales": "medium"}, "Received: scales=medium"),
    ],
)
def test_a_wrong_recipe_ends_in_one_error_with_its_file(changes, said):
    with pytest.raises(SystemExit) as error:
        recipes.read("swag/table9", content(**changes), "small")
    assert str(error.value).startswith("recipes/swag/table9.toml")
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            {"small": {"SWA": {"learning_rates": 0.1}}},
            "chosen.toml, [small.SWA]: the key `learning_rates` is unknown",
        ),
        (
            {"open": {"swag": {"all": {"milestones": [1, "two"]}}}},
            "chosen.toml, [open.swag.all]: `milestones` must be a list, each "
            "value an integer. Received: milestones=[1, 'two']",
        ),
        ({"smoke": {"epochs": "4"}}, "chosen.toml, [smoke]: `epochs` must be"),
    ],
)
def test_a_wrong_chosen_setting_ends_in_one_error(monkeypatch, tables, said):
    monkeypatch.setattr(lookup.tomllib, "loads", lambda text: tables)
    lookup.chosen.cache_clear()
    with pytest.raises(SystemExit) as error:
        lookup.chosen()
    assert str(error.value).startswith(said)


def test_a_wrong_published_setting_ends_in_one_error(monkeypatch):
    row = {
        "paper": "swag",
        "data": "any",
        "network": "any",
        "method": "SWA",
        "source": "section 1",
        "epochs": 10,
        "code": {"rank": "many"},
    }
    tables = {"hyperparameters": [row]}
    monkeypatch.setattr(published, "published", lambda: tables)
    lookup.check_published.cache_clear()
    with pytest.raises(SystemExit, match="published.toml, swag, any, any, SWA"):
        lookup.check_published()


def test_error_names_a_missing_setting(monkeypatch):
    tables = {"small": {"all": {"batch_size": 32}}, "smoke": {}}
    monkeypatch.setattr(lookup, "chosen", lambda: tables)
    cell = Cell("swag", "cifar10", "VGG-16", "SWAG", (("rank", 5),))
    with pytest.raises(SystemExit) as error:
        settings_of(cell, "SWA", "small")
    assert str(error.value) == (
        "swag, cifar10, VGG-16, SWAG, rank = 5: the key `epochs` is missing. "
        "It must be an integer."
    )


def test_record_has_the_declared_types():
    @dataclasses.dataclass(frozen=True)
    class Kind:
        pair: tuple[str, float]
        rate: float = 1.0
        many: tuple[int, ...] | None = None

    found = typed.record(Kind, {"pair": ["a", 1], "many": [1, 2]}, "here")
    assert found == Kind(("a", 1.0), 1.0, (1, 2))
    assert isinstance(found.pair[1], float)
    for wrong in (["a"], ["a", "b"], ["a", 1, 2], "ab"):
        with pytest.raises(SystemExit, match="a list of a string, a number"):
            typed.record(Kind, {"pair": wrong}, "here")


def test_a_default_and_the_same_value_share_a_run():
    cells = [
        Cell("swag", "cifar10", "VGG-16", "SWAG", options)
        for options in ((), (("batch_norm", True), ("train_samples", 1)))
    ]
    one, other = (settings_of(cell, "SWA", "small") for cell in cells)
    assert one == other and one.as_json() == other.as_json()
    assert "batch_norm" not in one.as_json()


def test_settings_of_predictions_do_not_name_a_training():
    options = (("rank", 5), ("samples", 3), ("scale", 1.0))
    cell = Cell("swag", "cifar10", "VGG-16", "SWAG", options)
    known = settings_of(cell, "SWA", "small")
    assert known.as_json(of_predictions=True) == {"samples": 3, "scale": 1.0}
    assert known.as_json()["rank"] == 5
    assert not known.as_json().keys() & set(settings.OF_PREDICTIONS)
    fields = {field.name for field in dataclasses.fields(known)}
    assert set(settings.OF_PREDICTIONS) < fields
    assert not set(settings.FACTS) & fields


def test_no_code_names_a_recipe():
    items = re.compile(r"\w+/(table|figure)\d+|swag/hessian")
    paths = sorted(PAPERS.rglob("*.py"))
    assert len(paths) > 30
    for path in paths:
        tree = ast.parse(path.read_text())
        documents = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value not in documents:
                assert not items.search(str(node.value)), path.name
