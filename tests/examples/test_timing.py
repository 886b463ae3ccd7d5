"""The ratio of times that the benchmarks print."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/benchmarks"))
import timing  # noqa: E402


class Clock:
    """Time that only the measured functions pass, in known amounts."""

    def __init__(self, monkeypatch, noise=0.0):
        self.now, self.rng = 0.0, np.random.default_rng(0)
        self.calls, self.noise = [], noise
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def function(self, name, seconds):
        def run():
            self.calls.append(name)
            # Other work slows both functions for a while.
            busy = 1.0 + (len(self.calls) // 20 % 2)
            noise = np.exp(self.noise * self.rng.normal())
            self.now += seconds * busy * noise

        return run


def test_ratio_is_the_median_of_pairs_in_turns(monkeypatch):
    clock = Clock(monkeypatch)
    found = timing.ratio(
        clock.function("a", 3.0), clock.function("b", 2.0), rounds=10
    )
    assert found == pytest.approx(1.5) and found.rounds == 10
    assert (found.low, found.high) == pytest.approx((1.5, 1.5))
    assert str(found) == "1.50 (1.50 to 1.50)"
    # The first calls warm up; then each function comes first in turns.
    assert clock.calls == ["a", "b"] * 2 + ["b", "a", "a", "b"] * 5


def test_a_wide_interval_is_measured_on_and_holds_the_truth(monkeypatch):
    inside = 0
    for seed in range(40):
        clock = Clock(monkeypatch, noise=0.3)
        clock.rng = np.random.default_rng(seed)
        ours, theirs = clock.function("a", 1.2), clock.function("b", 1.0)
        found = timing.ratio(ours, theirs, rounds=20, margin=0.01, most=3)
        assert found.rounds == 60
        inside += found.low <= 1.2 <= found.high
    # Binomial: fewer than 32 of 40 at 95 % have a probability below 1e-3.
    assert inside >= 32


def test_control_prints_the_ratio_of_a_function_to_itself(monkeypatch, capsys):
    plain = Clock(monkeypatch).function("a", 2.0)
    timing.show_control(plain, 4)
    assert capsys.readouterr().out == (
        "control, plain / plain: 1.00 (1.00 to 1.00)\n"
    )
