"""Tests of the guides that are Python programs."""

import re
import runpy
import sys

import matplotlib.pyplot as plt
import pytest

import keras_bdl as bdl
from tests.examples.conftest import EXAMPLES
from tests.helpers import own_garbage

FOLDER = EXAMPLES / "guides"
GUIDES = sorted(p for p in FOLDER.glob("*.py") if p.stem != "build")
README = EXAMPLES.parent / "README.md"
# What a guide writes where the README has the numbers of a full run.
AS_IN_README = {
    "epochs=EPOCHS": "epochs=40",
    ", verbose=0": "",
}


def cells(guide):
    """Returns the texts of the Markdown cells and of the code cells."""
    found = {"markdown": [], "code": []}
    for cell in re.split(r"^# %%", guide.read_text(), flags=re.M)[1:]:
        kind, _, text = cell.partition("\n")
        found["markdown" if "[markdown]" in kind else "code"].append(text)
    return found


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_guide_runs_and_draws(guide, monkeypatch, request):
    monkeypatch.setattr(sys, "argv", [str(guide), "--smoke"])
    monkeypatch.syspath_prepend(guide.parent)
    if 'strategy("mirrored")' in guide.read_text():
        mirrored = request.getfixturevalue("mirrored")
        monkeypatch.setattr(bdl.distribute, "strategy", lambda _: mirrored)
    try:
        with own_garbage():
            runpy.run_path(str(guide), run_name="__main__")
        assert plt.get_fignums()
    finally:
        plt.close("all")


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_guide_has_a_title_and_its_links_lead_to_files(guide):
    text = "\n".join(
        line.removeprefix("#").removeprefix(" ")
        for cell in cells(guide)["markdown"]
        for line in cell.splitlines()
    )
    assert re.match(r"# \S", text)
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not link.startswith("http"):
            assert (guide.parent / link).exists(), link


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_readme_links_to_guide(guide):
    assert f"(examples/guides/{guide.name})" in README.read_text()


@pytest.mark.parametrize(
    ("number", "name"),
    enumerate(("first_posterior", "trained_model", "variational_layers")),
)
def test_guide_begins_with_a_snippet_of_the_readme(number, name):
    code = "".join(cells(FOLDER / f"{name}.py")["code"])
    for ours, theirs in AS_IN_README.items():
        code = code.replace(ours, theirs)
    snippets = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(snippets) == 3
    *_, snippet = snippets[number].split("\n\n", 1)
    assert snippet.split("  # digits 5 to 9")[0].strip() in code
