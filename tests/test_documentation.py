"""Tests of `help` and `repr` over all public names."""

import importlib
import inspect
import pkgutil
import pydoc

import pytest

import keras_bdl as bdl
from tests.test_arguments import GIVEN

FOLDERS = [
    m.name for m in pkgutil.walk_packages(bdl.__path__, "keras_bdl.") if m.ispkg
]
SHOWN = [
    getattr(folder, name)
    for folder in (bdl.likelihoods, bdl.objectives, bdl.priors, bdl.schedules)
    for name in folder.__all__
    # A layer of Keras.
    if name != "LearnedStddev" and inspect.isclass(getattr(folder, name))
] + [
    bdl.extend.GroupLaplace,
    bdl.extend.ScaleMixture,
    bdl.extend.SquaredGradient,
    bdl.extend.SymmetricGamma,
    bdl.extend.UnitDirection,
]


@pytest.mark.parametrize("name", FOLDERS)
def test_first_line_of_a_folder_is_a_sentence(name):
    first, blank, *rest = importlib.import_module(name).__doc__.splitlines()
    assert first.endswith(".") and not blank and rest


@pytest.mark.parametrize("cls", SHOWN, ids=lambda cls: cls.__name__)
def test_repr_shows_every_argument(cls):
    given = GIVEN.get(cls.__name__, {})
    shown = repr(cls(**given))
    parameters = inspect.signature(cls).parameters.values()
    assert shown.startswith(f"{cls.__name__}(") and shown.endswith(")")
    for p in parameters:
        assert f"{p.name}=" in shown
    for name, value in given.items():
        assert f"{name}={value!r}" in shown


def test_repr_of_a_prior_in_a_prior_is_nested():
    shown = repr(bdl.objectives.MAP(bdl.priors.Normal(0.5, dataset_size=7)))
    assert "prior=Normal(stddev=0.5, mean=0.0, dataset_size=7)" in shown


def test_help_begins_with_an_overview_of_all_public_names():
    lines = bdl.__doc__.splitlines()
    assert len(lines) < 60 and max(map(len, lines)) <= 80
    for name in bdl.__all__:
        assert name in bdl.__doc__
    assert lines[0] in pydoc.render_doc(bdl, renderer=pydoc.plaintext)[:300]
