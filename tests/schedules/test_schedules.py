"""Schedules equal their formulas; `test_arguments.py` has the wrong numbers."""

import keras
import numpy as np
import pytest

from keras_bdl.schedules import CyclicalCosine
from keras_bdl.schedules import LinearRamp
from keras_bdl.schedules import SWASchedule
from tests.helpers import check_config


def test_configs_have_every_argument():
    check_config(CyclicalCosine, initial_learning_rate=0.5, cycle_steps=7)
    check_config(
        LinearRamp, initial_value=0.5, final_value=2.0, end_step=7, start_step=3
    )
    check_config(
        SWASchedule,
        initial_learning_rate=0.1,
        swa_learning_rate=0.02,
        swa_start_step=50,
    )


def test_cosine_equals_its_formula_in_every_cycle():
    schedule = CyclicalCosine(0.2, cycle_steps=5)
    for step in [0, 1, 4, 5, 9, 10**9 + 3]:
        expected = 0.1 * (1 + np.cos(np.pi * (step % 5) / 5))
        np.testing.assert_allclose(
            schedule(keras.ops.convert_to_tensor(step)), expected, rtol=1e-6
        )
    assert float(schedule(0)) == pytest.approx(0.2)


def test_ramp_is_a_straight_line_between_two_levels():
    ramp = LinearRamp(0.5, 2.0, end_step=12, start_step=2)
    steps = [0, 2, 3, 7, 12, 10**9]
    values = [float(ramp(keras.ops.convert_to_tensor(s))) for s in steps]
    np.testing.assert_allclose(values, [0.5, 0.5, 0.65, 1.25, 2.0, 2.0])


def test_ramp_ends_after_its_start():
    with pytest.raises(ValueError, match="`end_step` must be a number above 5"):
        LinearRamp(0.0, 1.0, end_step=5, start_step=5)


def test_rate_of_swa_is_constant_then_linear_then_constant():
    schedule = SWASchedule(0.5, 0.1, swa_start_step=100)
    steps = [0, 50, 60, 70, 80, 90, 100, 1000]
    rates = [0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1]
    np.testing.assert_allclose([schedule(s) for s in steps], rates, rtol=1e-5)
