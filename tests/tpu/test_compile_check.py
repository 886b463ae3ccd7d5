import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import compile_check
import programs
import pytest
import step_time

SCRIPT = Path(__file__).parents[2] / "tpu" / "compile_check.py"
HLO = """
  %add = f32[8]{0} add(%a, %b)
  %all-reduce.1 = (f32[3,3,3,8]{3,2,1,0:T(4,128)S(1)}, /*index=1*/bf16[10]{0}) all-reduce(%x, %y), channel_id=1
  ROOT %g = f32[16,2]{1,0} all-gather(%z), dimensions={0}
  %s = f32[] all-reduce-start(%n)
  %d = f32[] all-reduce-done(%s)
"""  # noqa: E501


def found(**changes):
    known = {
        "memory": {"temporary": 5 * 2**30, "program": 2**30},
        "collective_bytes": 2000,
        "weight_bytes": 1000,
        "reduced": 2,
        "complaints": [],
    }
    return known | changes


def test_collectives_of_a_compiled_program_are_counted():
    assert programs.compiled_collectives(HLO) == [
        ("all-reduce", 4 * 3 * 3 * 3 * 8 + 2 * 10),
        ("all-gather", 4 * 16 * 2),
        ("all-reduce", 4),
    ]


@pytest.mark.parametrize(
    "changes, step, message",
    [
        ({"error": "no\n  such thing"}, "train", "no such thing"),
        ({"complaints": ["dynamic shape: x"]}, "train", "dynamic shape: x"),
        ({"memory": {"temporary": 17 * 2**30}}, "train", "17.00 GiB of 16.00"),
        ({"collective_bytes": 1000}, "train", "2 times the weights are 2000"),
        ({"collective_bytes": 10**4}, "train", "chips add up 10000 bytes"),
        ({"collective_bytes": 10**4}, "predict", "0 times the weights"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(changes, step, message):
    (problem,) = compile_check.problems(found(**changes), step, 16 * 2**30)
    assert message in problem


def test_step_that_fits_and_sends_what_it_must_has_no_problem():
    assert compile_check.problems(found(), "train", 16 * 2**30) == []
    of_factors = found(reduced=None, collective_bytes=10**9)
    assert compile_check.problems(of_factors, "train", 16 * 2**30) == []


def test_time_on_paper_is_that_of_the_slowest_part_and_of_the_links():
    step = {"flops": 197e12, "bytes": 2 * 819e9, "collective_bytes": 100e9}
    times = step_time.times(step, "v5e:2x2")
    # Three quarters of the bytes go out and come in, on two links.
    assert times == pytest.approx(
        {"arithmetic": 1.0, "memory": 2.0, "links": 1.5, "step": 3.5}
    )


def test_topology_is_read():
    assert step_time.devices_in("v5e:2x4") == 8
    assert step_time.devices_in("v3:2x2") == 8  # two cores each
    for topology in ("v9:2x2", "v5e", "v5e:2by2"):
        with pytest.raises(ValueError, match=f"topology='{topology}'"):
            step_time.devices_in(topology)


def check(*arguments):
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is missing: python -m pip install -e ".[tpu]"')
    pytest.importorskip("jax", reason='python -m pip install -e ".[tpu]"')
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def test_smoke_compiles_for_four_chips(tmp_path):
    out = tmp_path / "results.json"
    result = check("--only", "vogn/small", "--out", out)
    assert result.returncode == 0, result.stderr
    train, predict = json.loads(out.read_text())
    # All gradients and squares in one go.
    assert train["collectives"] == 1
    assert train["collective_bytes"] == 2 * train["weight_bytes"]
    assert predict["collectives"] == 0
    assert "| vogn/small | train | v5e:2x2 | 64 | OK |" in result.stdout


def test_step_that_does_not_fit_fails(tmp_path):
    result = check(
        *("--only", "sgd/small", "--steps", "train", "--batch", "16000000"),
        *("--out", tmp_path / "results.json"),
    )
    assert result.returncode == 1, result.stderr
    assert "FAILED" in result.stdout and "hbm" in result.stdout.lower()
