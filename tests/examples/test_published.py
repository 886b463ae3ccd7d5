import math
import re
import tomllib
import types

import pytest

from tests.examples.published_rows import PAPERS
from tests.examples.published_rows import numbers_of
from tests.examples.published_rows import published
from tests.examples.published_rows import settings

USUAL_SCALES = "paper", "small", "smoke"
RECIPES = {
    "vogn": (["table1"], [1, 3, 4, 5, *range(8, 18)]),
    "swag": ([f"table{n}" for n in range(1, 5)], range(1, 10)),
    "radial": (["table1", "table2"], [*range(3, 8), 10, 11]),
    "taylor": (["table1"], [1]),
    "atmc": (["table1", "table2"], [2, 3]),
}
FRACTIONS = {"accuracy", "train_accuracy", "ece", "auroc"}
FRACTIONS |= {"untrained_share", "good_share"}
FRACTIONS |= {f"auroc_{percent}" for percent in (0, 10, 20, 30)}
METRICS = FRACTIONS | {
    "accuracy_gap",
    "entropy_divergence",
    "epochs",
    "largest_eigenvalue",
    "learning_rate",
    "learning_rate_equivalent",
    "nll",
    "nll_gap",
    "optimal_learning_rate",
    "parameters",
    "relative_seconds_per_epoch",
    "rmse",
    "seconds_per_epoch",
    "smallest_eigenvalue",
    "train_nll",
}
NAMES = {"paper", "source", "data", "network", "method"}
# What is set, with what it may be; a pair of numbers is a closed range.
SETTINGS = {
    "activation": str,
    "augmentation": str,
    "augmentation_factor": (1.0, 10.0),
    "augmented": bool,
    "average_speed": (1e-5, 1e-2),
    "batch_norm_fraction": (0.0, 1.0),
    "batch_size": (16, 4096),
    "beta_1": (0.0, 1.0),
    "beta_2": (0.0, 1.0),
    "burn_in_epochs": (0, 1000),
    "cycle_epochs": (1, 1000),
    "damping": (1e-4, 1e-3),
    "dataset_size": (50_000, 1_281_167),
    "dropout_rate": (0.0, 0.5),
    "epochs": (10, 1000),
    "every": (0.25, 1),
    "filters": (16, 64),
    "friction": (0.0, 1.0),
    "image_size": (28, 512),
    "initial_rho": (-10.0, 0.0),
    "initial_stddev": (0.0, 1.0),
    "initial_temperature": (0.0, 1.0),
    "initial_variance_ratio": (0.0, 1.0),
    "l2": (1e-4, 1e-2),
    "learning_rate": (1e-5, 1.6),
    "learning_rate_decay": (0.5, 1.0),
    "learning_rate_factor": (0.1, 0.1),
    "max_speed": (1e-4, 1e-2),
    "members": (2, 5),
    "milestones": list,
    "momentum": (0.9, 0.9),
    "nesterov": bool,
    "optimizer": str,
    "pretrain_epochs": (0, 1),
    "pretrained": bool,
    "prior_precision": (0.5, 150.0),
    "prior_stddev": (1.0, 1.0),
    "processes": (1, 128),
    "rank": (0, 20),
    "samples": (1, 100),
    "scale": (0.0, 1.0),
    "scale_prior": (5.0, 5.0),
    "seeds": (1, 10),
    "start_epoch": (0, 300),
    "swa_learning_rate": (1e-3, 0.05),
    "temperature": (0.0, 1.0),
    "temperature_steps": (1, 20_000),
    "test_size": (10_000, 10_000),
    "train_samples": (1, 6),
    "train_size": (44_594, 54_000),
    "unit": str,
    "validation_size": (5000, 7026),
    "warmup_epochs": (5, 5),
    "warmup_learning_rate": (1e-5, 1.25e-2),
    "weight_decay": (1e-4, 1e-3),
}
# A search goes beyond what is used in the end.
SEARCHED = {"batch_size": (16, 10_000), "rank": (0, 140), "epochs": (3, 500)}
SEARCHED |= {"covariance": str}


def entries():
    return {key: value for key, value in published().items() if "/" in key}


def allowed(value, kind):
    if isinstance(kind, tuple):
        number = isinstance(value, int | float) and value is not True
        return number and kind[0] <= value <= kind[1]
    return isinstance(value, kind)


def test_every_table_and_figure_has_a_source_a_caption_and_claims():
    wanted = {
        f"{paper}/{name}"
        for paper, (tables, figures) in RECIPES.items()
        for name in [*tables, *(f"figure{n}" for n in figures)]
    }
    assert set(entries()) == wanted | {"swag/hessian"}
    assert set(published()["papers"]) == set(RECIPES)
    for name, entry in entries().items():
        texts = [entry["source"], entry["caption"], *entry["claims"]]
        assert entry["claims"] and all(texts), name
        assert ("x" in entry and "y" in entry) == ("figure" in name), name


@pytest.mark.parametrize("name", entries())
def test_rows_have_the_labels_and_metrics_of_their_entry(name):
    entry = entries()[name]
    keys = {"source", "caption", "claims", "x", "y", "error"}
    assert set(entry) <= keys | {"labels", "metrics", "rows"}
    if "rows" not in entry:
        return
    assert set(entry["metrics"]) <= METRICS
    for row in entry["rows"]:
        numbers = set(row) - set(entry["labels"])
        metrics = set(entry["metrics"])
        assert {"data", "network", "method"} <= set(row)
        assert numbers & metrics
        assert numbers <= metrics | {f"{key}_error" for key in metrics}
        if any(key.endswith("_error") for key in numbers):
            assert "error" in entry
        for key in numbers:
            assert math.isfinite(row[key])
            if key.removesuffix("_error") in FRACTIONS:
                assert 0 <= row[key] <= 1, (row, key)
            if key.endswith("_error"):
                assert 0 <= row[key] and key.removesuffix("_error") in row
    labels = [
        tuple(row.get(label) for label in entry["labels"])
        for row in entry["rows"]
    ]
    assert len(set(labels)) == len(labels)


def recipes(scale):
    """Returns the names of the recipes that have a scale."""
    return {
        f"{path.parent.name}/{path.stem}"
        for path in (PAPERS / "recipes").glob("*/*.toml")
        if scale in tomllib.loads(path.read_text()).get("scales", USUAL_SCALES)
    }


@pytest.mark.parametrize("scale", ["small", "medium"])
def test_results_judge_every_claim_of_every_recipe(scale):
    text = (PAPERS / "RESULTS.md").read_text()
    _, *parts = re.split(
        r"^# The results at (\w+) scale", text, flags=re.MULTILINE
    )
    text = dict(zip(parts[::2], parts[1::2], strict=True))[scale]
    _, *sections = re.split(r"^### `(\S+)`", text, flags=re.MULTILINE)
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    assert found.keys() == recipes(scale)
    for name in found:
        known = entries()[name]
        said = re.findall(r"^- \*(.+?)\*: \S", found[name], re.MULTILINE)
        claims = [claim[0].upper() + claim[1:] for claim in known["claims"]]
        assert said == claims, name


def test_hyperparameters_are_known_and_in_a_plausible_range():
    seen = set()
    for row in published()["hyperparameters"]:
        assert NAMES <= set(row) and row["paper"] in RECIPES
        extra = row.get("code", {})
        assert not set(extra) & set(row), row
        values = {key: row[key] for key in row.keys() - NAMES} | extra
        for key in ("printed", "code", "based_on"):
            values.pop(key, None)
        for key, value in values.items():
            assert allowed(value, SETTINGS[key]), (row, key)
        about = tuple(row[key] for key in sorted(NAMES - {"source"}))
        about += (row.get("augmented"),)
        assert about not in seen
        seen.add(about)


def test_searches_list_plausible_values():
    for row in published()["searches"]:
        assert NAMES < set(row)
        for key in row.keys() - NAMES:
            kind = (SETTINGS | SEARCHED)[key]
            assert all(allowed(value, kind) for value in row[key]), key


def test_samples_and_means_have_the_one_number_of_the_paper():
    options = (("covariance", "scalar"), ("temperature", 0.1))
    for method in ("Taylor VI", "Taylor VI, at the means"):
        cell = types.SimpleNamespace(
            data="cifar10",
            test="",
            network="PreActResNet-18",
            method=method,
            options=options,
        )
        assert numbers_of("taylor/table1", cell)["nll"] == 0.21


def test_every_row_of_hyperparameters_can_be_merged():
    for row in published()["hyperparameters"]:
        names = [row[key] for key in ("paper", "data", "network", "method")]
        values = settings(*names, row.get("augmented"), code=True)
        for key in row.keys() & SETTINGS.keys():
            assert values[key] == row[key]
        assert not values.keys() & (NAMES | {"based_on", "code", "printed"})


def test_specific_rows_win_over_general_rows_and_base_rows():
    swag = settings("swag", "imagenet2012", "ResNet-152", "SWAG")
    assert swag["rank"] == 20 and swag["optimizer"] == "SGD"
    assert swag["epochs"] == 10 and swag["batch_norm_fraction"] == 0.1
    cifar = settings("swag", "cifar10", "VGG-16", "SWAG-Diagonal")
    assert cifar["epochs"] == 300 and cifar["rank"] == 0
    cifar = settings("swag", "cifar100", "PreResNet-164", "SWAG")
    assert cifar["epochs"] == 300 and "learning_rate" not in cifar
    cifar = settings("swag", "cifar100", "PreResNet-164", "SWAG", code=True)
    assert cifar["learning_rate"] == 0.1
    assert cifar["swa_learning_rate"] == 0.05


def test_missing_and_ambiguous_settings_raise():
    with pytest.raises(ValueError, match="no hyper-parameters of vogn, mnist"):
        settings("vogn", "mnist", "LeNet-5", "VOGN")
    with pytest.raises(ValueError, match="`augmented` must be given"):
        settings("vogn", "cifar10", "AlexNet", "VOGN")
