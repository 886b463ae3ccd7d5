"""The commands of all pages: run in smoke here, by another test, or marked."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import train

import keras_bdl as bdl
from tests.helpers import dtype_policy
from tests.helpers import optimize_graphs

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in sorted(ROOT.rglob("*.md"))
    if not {"site", "results"} & set(page.relative_to(ROOT).parts)
]
# The start of a command -> why no test executes it.
MARKED = {
    "TF_ENABLE_ONEDNN_OPTS=0 python train.py": "a script of the user",
    "cd ": "a folder",
    "export TPU_NAME": "hardware: a pod",
    "gcloud ": "hardware: makes or enters a TPU",
    "git clone": "download",
    "bash .ci/run": "the tests themselves",
    "python -m pip install": "download",
    "python3 -m pip install": "download",
    "python -m pytest": "the tests themselves",
    "python examples/benchmarks/conformal.py": "download: MAPIE",
    "python examples/benchmarks/curvature.py": "download: PyTorch, BackPACK",
    "until python3 tpu/train.py --strategy tpu ...": "hardware: a loop",
    "python tpu/compile_check.py --smoke": "download: libtpu",
    "python tpu/compile_check.py --only": "download: libtpu",
    "python tpu/compile_check.py --table": "the file of the line above",
}
# Tests that execute scripts in smoke, by the name of the script in `examples`.
TESTS = "".join(
    test.read_text(encoding="utf-8")
    for folder in ("examples", "guides")
    for test in sorted((ROOT / "tests" / folder).glob("test_*.py"))
)
# Two scripts whose tests do not name them so.
EXECUTED = {
    "examples/guides/build.py": "tests/guides/test_site.py",
    "examples/papers/run.py": "tests/examples/test_papers.py",
}


def commands(page):
    """Returns the commands in blocks and in lines of a page."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"`((?:python3?|bash) [^`]+)`", text)
    for block in re.findall(r"```bash\n(.*?)```", text, re.S):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s+# .*|^# .*", "", line)
            found += [part.strip() for part in line.split(" && ")]
    return [" ".join(command.split()) for command in found if command]


TRAINING = list(
    dict.fromkeys(
        command
        for page in PAGES
        for command in commands(page)
        if re.match(r"python3? tpu/train\.py", command)
    )
)


def is_executed(script):
    if script in EXECUTED:
        test = ROOT / EXECUTED[script]
        return Path(script).name in test.read_text(encoding="utf-8")
    name = re.escape(script.removeprefix("examples/"))
    return re.search(rf'\b(run|start)\(\s*"{name}"', TESTS) is not None


def test_every_command_of_a_page_is_executed_or_marked():
    used = set()
    for page in PAGES:
        for command in commands(page):
            words = shlex.split(command)
            script = words[1] if words[0].startswith("python") else ""
            marks = [m for m in MARKED if command.startswith(m)]
            used |= {*marks}
            if (ROOT / script).is_file():
                text = (ROOT / script).read_text(encoding="utf-8")
                flags = [w for w in words if w.startswith("--")]
                assert all(f'"{flag}"' in text for flag in flags), command
            is_list = words[1:] == ["tpu/compile_check.py", "--list"]
            known = command in TRAINING or is_list or marks
            assert known or is_executed(script), f"{page.name}: {command}"
    assert used == MARKED.keys()


def test_pages_have_the_commands_that_train():
    assert len(TRAINING) >= 3
    assert any("--steps-per-execution 100" in c for c in TRAINING)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, mirrored):
    """Runs a training in smoke, in this process on two logical CPUs."""
    # A second strategy of a process would disturb the sums of the first.
    monkeypatch.setattr(bdl.distribute, "strategy", lambda name: mirrored)

    def run(command):
        words = shlex.split(command)[2:]
        if "--steps-per-execution" in words:
            # 100 do not divide the 1,251 steps of ImageNet, and 4 not these 11.
            words[words.index("--steps-per-execution") + 1] = "4"
        words += ["--smoke", "--directory", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["train.py", *words])
        optimize_graphs(False)  # saves a sixth of the time
        with dtype_policy("float32"):
            train.main()
        return capsys.readouterr().out

    return run


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("command", TRAINING)
def test_training_of_a_page_ends_in_a_report(command, run, tmp_path):
    printed = run(command)
    assert "2 replicas on 1 hosts, 11 steps an epoch" in printed
    assert "accuracy" in (tmp_path / "report.json").read_text()
    assert "Classification" in printed
