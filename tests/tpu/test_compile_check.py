import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import cases
import compile_check
import costs
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

STABLEHLO = """
module @step {
  func.func private @twice.1(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<4xf32> loc(#loc1)
    return %0 : tensor<4xf32> loc(#loc)
  }
  func.func private @region.2(%arg0: tensor<f32> loc("x")) -> tensor<f32> {
    %0 = "stablehlo.all_reduce"(%arg0) ({}) : (tensor<f32>) -> tensor<f32>
  }
  func.func @main(%arg0: tensor<16x8xf32> loc("x")) -> tensor<8xf32> {
    %c = stablehlo.constant dense<1> : tensor<16x8xi1> loc(#loc1)
    %0 = stablehlo.select %c, %arg0, %arg0 : tensor<16x8xi1>, tensor<16x8xf32>
    %1 = "stablehlo.all_reduce"(%0) <{groups = dense<0> : tensor<1x4xi64>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %9 = stablehlo.add %arg1, %arg2 : tensor<f32>
      stablehlo.return %9 : tensor<f32>
    }) : (tensor<16x8xf32>) -> tensor<16x8xbf16> loc(#loc2)
    %2:2 = stablehlo.while(%i = %n, %s = %1) : tensor<i32>, tensor<16x8xbf16>
    %3 = stablehlo.custom_call @Eigh(%2) {config = "1"} : (tensor<8x8xf32>) -> tuple<tensor<8x8xf32>, tensor<8xf32>>
    %4 = stablehlo.get_tuple_element %3[1] : (tuple<tensor<8x8xf32>, tensor<8xf32>>) -> tensor<8xf32>
    %5 = call @twice.1(%4) : (tensor<4xf32>) -> tensor<4xf32>
    %6 = call @twice.1(%5) : (tensor<4xf32>) -> tensor<4xf32>
    return %4 : tensor<8xf32> loc(#loc)
  }
}
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


def test_results_of_a_lowered_program_are_added_up():
    constant, select, all_reduce = 16 * 8, 4 * 16 * 8, 2 * 16 * 8
    of_the_sum, loop, eigh = 4, 4 + 2 * 16 * 8, 4 * 8 * 8 + 4 * 8
    two_calls = 2 * 4 * 4
    assert programs.result_bytes(STABLEHLO) == (
        constant + select + all_reduce + of_the_sum + loop + eigh + two_calls
    )


def test_collective_of_a_function_that_nothing_calls_is_not_counted():
    assert programs.lowered_collectives(STABLEHLO) == [
        ("all-reduce", 2 * 16 * 8)
    ]


def test_mask_has_a_byte_for_each_element_in_a_program_for_jax():
    packed = '%c = stablehlo.constant dense<"0x0503"> : tensor<2x5xi1> loc(#l)'
    # The lowest bit of 0x05 is the first of 1010000011.
    assert programs.for_jax(packed) == (
        '%c = stablehlo.constant dense<"0x01000100000000000101"> '
        ": tensor<2x5xi1> loc(#l)"
    )


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


COSTS = {
    **{"case": "vogn/small", "step": "train", "topology": "v5e:2x2"},
    **{"batch_size": 64, "collectives": 1, "lowered_collectives": 12},
    **{"flops": 1e6, "bytes": 2000.0, "collective_bytes": 0},
    **{"result_bytes": 3000, "versions": {"jax": "0.10.2"}},
}


@pytest.mark.parametrize(
    "changes, sentences",
    [
        ({}, []),
        ({"bytes": 2199.0, "collectives": 0, "flops": 1e3}, []),
        ({"collectives": 2}, ["collectives 2, recorded 1 (+100.0%)"]),
        (
            {"bytes": 2201.0, "lowered_collectives": 13},
            [
                "lowered_collectives 13, recorded 12 (+8.3%)",
                "bytes 2,201, recorded 2,000 (+10.1%)",
            ],
        ),
        ({"collective_bytes": 4}, ["collective_bytes 4, recorded 0"]),
    ],
    ids=str,
)
def test_collective_or_ten_percent_more_than_recorded_is_said(
    changes, sentences
):
    assert costs.increases(COSTS | changes, COSTS) == [
        f"vogn/small, train: {sentence}" for sentence in sentences
    ]


def test_costs_are_recorded_in_place_of_those_of_the_same_step(tmp_path):
    path = tmp_path / "costs.json"
    assert costs.recorded(COSTS, path) is None
    of_prediction = COSTS | {"step": "predict", "bytes": 5.0}
    newer = COSTS | {"bytes": 1000.0, "versions": {"jax": "0.10.3"}}
    for entry in (COSTS, of_prediction, newer):
        costs.record(entry | {"compile_seconds": 1.0}, path)
    assert costs.recorded(COSTS, path) == newer
    assert costs.recorded(of_prediction, path) == of_prediction
    assert len(json.loads(path.read_text())) == 2
    assert costs.changes(newer, COSTS) == "bytes -50.0%, jax 0.10.2 -> 0.10.3"


def test_pattern_names_all_methods():
    names = [f"{method}/small" for method in cases.METHODS]
    assert cases.named(["*/small", "vogn/small"]) == names


def test_units_of_a_table_fit_its_largest_entries():
    step = COSTS | {"memory": {"program": 2**20}, "problems": []}
    step["compile_seconds"] = 3.2
    failed = COSTS | {"problems": ["no"]}
    head, _, good, bad = compile_check.table([failed, step]).splitlines()
    assert "| Mflop | kB moved | MB needed | all-reduces | B |" in head
    assert good == (
        "| vogn/small | train | v5e:2x2 | 64 | OK | 1 | 2 | 1.05 | 1 | 0 "
        "| 5.08e-06 | 3 |"
    )
    assert bad.count("|") == head.count("|") and "| FAILED | - |" in bad


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


@pytest.mark.parametrize("method", ["atmc", "mean_field", "noisy_kfac"])
def test_compiled_step_costs_no_more_than_recorded(method, tmp_path):
    out = tmp_path / "results.json"
    result = check("--only", f"{method}/small", "--out", out)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("costs.json: ") == 2, result.stdout


def test_step_that_does_not_fit_fails(tmp_path):
    result = check(
        *("--only", "sgd/small", "--steps", "train", "--batch", "16000000"),
        *("--out", tmp_path / "results.json"),
    )
    assert result.returncode == 1, result.stderr
    assert "FAILED" in result.stdout and "hbm" in result.stdout.lower()
