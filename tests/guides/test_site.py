"""Tests of what `examples/guides/build.py` makes a site of."""

import collections
import inspect
import re
import sys
import tomllib
import typing
from pathlib import Path

import pytest

import keras_bdl as bdl

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "examples" / "guides"
sys.path.insert(0, str(GUIDES))
from website import api
from website import docstrings
from website import equations
from website import outputs
from website import pages
from website import public_names

from tests.test_docstring_examples import EXAMPLES

sys.path.remove(str(GUIDES))

BY_PATH = public_names.by_path()
NAMES = public_names.public_names()
READ = [*GUIDES.glob("*.md"), *public_names.python_guides()]
TEXTS = {path.relative_to(ROOT): path.read_text() for path in READ}


def documentation(name):
    return inspect.getdoc(name.value) or ""


def test_every_public_name_has_a_page_of_its_own():
    frozen = tomllib.loads((ROOT / "tests" / "public_names.toml").read_text())
    folders = frozen.keys() - {"keras_bdl"}
    paths = {f"{f}.{name}" for f in folders for name in frozen[f]}
    assert BY_PATH.keys() == paths | (set(frozen["keras_bdl"]) - folders)
    files = [api.page_of(name).lower() for name in NAMES]
    assert len(set(files)) == len(NAMES)


def test_every_public_name_appears_in_a_guide():
    seen = {
        name.path
        for text in TEXTS.values()
        for name in public_names.mentions(text, BY_PATH)
    }
    assert not {name.path for name in NAMES} - seen


# It changes Keras for the whole process; tests/distribute/ runs it.
NOT_RUN = {"distribute.mend_keras"}


def words_about(name):
    """Returns the words in the annotations of a name and its methods."""
    values = [name.value, *getattr(name.value, "__dict__", {}).values()]
    types = [getattr(v, "__annotations__", {}).values() for v in values]
    text = " ".join(str(a) for row in types for a in row)
    return set(re.findall(r"\w+", text))


def implements(value, protocol):
    """Returns whether a class has everything that a protocol asks for."""
    asked = {*vars(protocol), *vars(protocol).get("__annotations__", {})}
    given = {*dir(value), *inspect.signature(value).parameters}
    return {a for a in asked if not a.startswith("_")} <= given


def is_shown_by(name, shown):
    """Returns whether one of the names makes, takes or extends a class."""
    if not inspect.isclass(name.value):
        return False
    makers = re.findall(r"`(\w+)`", documentation(name).splitlines()[0])
    classes = [n.value for n in shown if inspect.isclass(n.value)]
    if typing.Protocol in name.value.__bases__:
        return any(implements(cls, name.value) for cls in classes)
    return any(
        n.name in makers or name.name in words_about(n) for n in shown
    ) or any(issubclass(cls, name.value) for cls in classes)


def test_every_public_name_is_shown_by_an_executed_example():
    """Its own, one that uses it, or one of a name that makes or extends it."""
    code = [*EXAMPLES.values()]
    for text in TEXTS.values():
        code += re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    used = set(public_names.mentions("\n".join(code), BY_PATH))
    shown = {n for n in NAMES if n in used or "Example:" in documentation(n)}
    for _ in range(3):
        shown |= {n for n in NAMES if n not in shown and is_shown_by(n, shown)}
    assert {n.path for n in NAMES} - {n.path for n in shown} == NOT_RUN


def test_methods_that_no_guide_calls_come_last():
    page = api.name_page(BY_PATH["IVON"], {"README.md": "keras_bdl"})
    used, authors = page.split("## For authors of methods\n")
    assert "## Used in" in used
    for hook in ("batch_statistics", "check"):
        assert f"`{hook}(" in authors and f"`{hook}(" not in used
    page = api.name_page(BY_PATH["posteriors.Gaussian"], {})
    used, authors = page.split("## For authors of methods\n")
    assert "`with_scale(" in used and "`with_scale(" not in authors
    # Nothing extends this class.
    page = api.name_page(BY_PATH["extend.DatasetSpec"], {})
    assert "`normalize(" in page and "For authors of methods" not in page


def test_arguments_of_every_docstring_become_a_list():
    for name in NAMES:
        text = documentation(name)
        found = docstrings.to_markdown(text)
        assert found.count("```") % 2 == 0, name
        assert not re.search(r"^(Args|Attributes):", found, re.MULTILINE), name
        arguments = re.search(r"^Args:\n((?: .*\n|\n)+)", text + "\n", re.M)
        if arguments:
            for entry in re.findall(r"^    ([*\w]+):", arguments[1], re.M):
                assert f"`{entry}`\n:   " in found, (name, entry)


@pytest.mark.parametrize(
    ("line", "html"),
    [
        (
            "sigma^2 = tau / (rho N)   (1)",
            "<i>σ</i><sup>2</sup> = <i>τ</i> / (<i>ρ</i> <i>N</i>)",
        ),
        (
            "m_(n-1) <- sum_i w_i, m_hat",
            "<i>m</i><sub>(<i>n</i>−1)</sub> ← ∑<sub><i>i</i></sub> "
            "<i>w</i><sub><i>i</i></sub>, <i>m\u0302</i>",
        ),
        (
            "step_size exp(-x^(3/2)) < 1",
            "<code>step_size</code> exp(−<i>x</i><sup>3/2</sup>) &lt; 1",
        ),
    ],
)
def test_equation_is_typeset(line, html):
    found = equations.typeset(f"    {line}")
    assert f'<span style="margin-left:0.0em">{html}</span>' in found
    assert ("<b>(1)</b>" in found) == line.endswith("(1)")


def test_indented_code_is_no_equation():
    assert equations.is_equation("    p = 1")
    assert equations.is_equation("    x + f(x)      (1)")
    assert not equations.is_equation("    net = keras_bdl.Model(x, y)")
    assert not equations.is_equation("    rank   how many columns")


def printed(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def result(text):
    return {"output_type": "execute_result", "data": {"text/plain": text}}


def test_outputs_are_printed_text_in_one_piece_and_pictures():
    picture = {"output_type": "display_data", "data": {"image/png": ""}}
    cell = [
        printed("one\nINFO:tensorflow:Using\n"),
        printed("I0000 00:00 oneDNN\nUserWarning: mind\n", "stderr"),
        printed("two\n"),
    ]
    assert outputs.printed_warnings(cell) == ["UserWarning: mind"]
    assert outputs.shown(cell) == [printed("one\ntwo\n")]
    # What a plot returns is no output; a value is one.
    assert outputs.shown([result("<Axes: >"), picture]) == [picture]
    assert outputs.shown([result("<History at 0x7f>")]) == []
    assert outputs.shown([result("0.5")]) == [result("0.5")]
    with pytest.raises(ValueError, match="progress bar"):
        outputs.shown([printed("1/3\r2/3\r3/3")])


def test_page_needs_a_picture_or_a_block_of_code(tmp_path):
    site = pages.Pages(tmp_path, BY_PATH)
    for folder, module in {"": bdl, **public_names.folders()}.items():
        site.add(f"api/{folder}.md", api.folder_page(folder, module, []))
    with pytest.raises(ValueError, match="bare.md has no picture and no block"):
        site.add("bare.md", "Words alone.")


def test_navigation_has_every_guide():
    found = pages.navigation((ROOT / "README.md").read_text())
    listed = {Path(p) for paths in found.values() for p in paths}
    assert listed >= TEXTS.keys()


def test_every_guide_has_a_picture_or_a_block_of_code():
    for path, text in TEXTS.items():
        if path.suffix == ".md":
            assert "```" in text or "![" in text, path
        else:
            assert "plt." in text or "bdl.plots." in text, path


def anchors(path):
    """Returns the anchors of the headings of a page, as on GitHub."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^(?:# )?#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", h.lower()) for h in headings)
    return {h.replace(" ", "-") for h in plain}


def test_links_of_guides_lead_to_files_and_headings():
    links = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
    for path, text in TEXTS.items():
        for target, anchor in links.findall(text):
            file = ROOT / path.parent / target if target else ROOT / path
            assert file.exists(), (path, target)
            assert not anchor or anchor in anchors(file), (path, anchor)


def rows(text, heading):
    """Returns the cells of the first table below a heading."""
    table = re.search(r"^\|.*?(?=\n[^|])", text.split(heading)[1], re.M | re.S)
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table[0].splitlines()[2:]
    ]


# What `choose.md` calls the methods of the README.
CHOSEN = {
    "`bdl.IVON`": "IVON",
    "`bdl.objectives.SampledVI`": "sampled VI",
    "`bdl.layers.MeanFieldDense`": "mean-field",
    "`bdl.objectives.TaylorVI`": "Taylor VI",
    "`bdl.fit_laplace`": "Laplace, last layer",
    "`bdl.SWAG`": "SWAG",
    "`bdl.posteriors.MCDropout`": "MC dropout",
    "`bdl.posteriors.Ensemble`": "deep ensemble",
    "`bdl.posteriors.Mixture`": "multi-SWAG",
    "`bdl.prediction.TemperatureScaling`": "temperature scaling",
    "`bdl.ATMC`": "ATMC",
    "`bdl.VOGN`": "VOGN",
    "`bdl.NoisyKFAC`": "Noisy K-FAC",
    "SGD": "SGD",
}


def test_numbers_of_choose_are_those_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    measured = {}
    for method, *cells in rows(readme, "## Measured on images"):
        means = [cell.split(" ")[0] for cell in cells]
        accuracy, nll, _, shift, unknown, time = means
        measured[method] = [time, accuracy, nll, shift, unknown]
    choose = (GUIDES / "choose.md").read_text()
    found = {}
    for _, take, *numbers in rows(choose, "## From your situation"):
        name = re.match(r"\[?(`[^`]+`|\w+)", take)[1]
        found[CHOSEN[name]] = numbers
    assert found == {name: measured[name] for name in CHOSEN.values()}


def test_cost_of_a_prediction_is_that_of_the_benchmark():
    """The column "program" of `examples/README.md`, one row a posterior."""
    readme = (ROOT / "examples" / "README.md").read_text()
    program = collections.defaultdict(list)
    for name, _, passes, *_ in rows(readme, "## Cost of a prediction"):
        program[name].append(passes)
    choose = (GUIDES / "choose.md").read_text()
    for name, *passes in rows(choose, "## What a prediction costs"):
        assert passes in program.values(), name


def test_verdicts_are_those_of_the_results():
    """The table of `results.md` counts the claims at the small scale."""
    results = (ROOT / "examples" / "papers" / "RESULTS.md").read_text()
    small = results.split("# The results at medium scale")[0]
    kinds = ["Yes", "Partly", "No", "Open", "Not measured"]
    claim = re.compile(rf"^- \*.+?\*: ({'|'.join(kinds[::-1])})\b", re.M)
    counted = []
    for section in small.split("\n## ")[1:]:
        count = collections.Counter(claim.findall(section))
        counted.append([count[kind] for kind in kinds])
    table = re.findall(
        r"^\| \[[\w ]+\]\(.*?\) \|([ \d|]+)\|$",
        (GUIDES / "results.md").read_text(),
        re.MULTILINE,
    )
    assert [[int(n) for n in row.split("|")] for row in table] == counted


def test_links_and_names_of_a_page_lead_to_pages_of_the_site(tmp_path):
    site = pages.Pages(tmp_path, BY_PATH)
    page = "examples/guides/made.md"
    site.add(
        page,
        "[a](../../keras_bdl/plots/_canvas.py) `bdl.IVON()` [b](words.md#x)\n"
        "`bdl.layers.MeanField*`\n```python\n`bdl.IVON` [c](none.py)\n```\n",
    )
    assert (tmp_path / page).read_text() == (
        "[a](../../keras_bdl/plots/_canvas.py.md) "
        "[`bdl.IVON()`](../../api/optimizers/IVON.md) [b](words.md#x)\n"
        "`bdl.layers.MeanField*`\n```python\n`bdl.IVON` [c](none.py)\n```\n"
    )
    assert (tmp_path / "keras_bdl/plots/_canvas.py.md").exists()
    assert (tmp_path / "examples/guides/words.md").exists()
