import numpy as np
import pytest

from keras_bdl.schedules import SWASchedule
from tests.helpers import check_config


def test_config_has_every_argument():
    check_config(
        SWASchedule,
        initial_learning_rate=0.1,
        swa_learning_rate=0.02,
        swa_start_step=50,
    )


def test_rate_is_constant_then_linear_then_constant():
    schedule = SWASchedule(0.5, 0.1, swa_start_step=100)
    steps = [0, 50, 60, 70, 80, 90, 100, 1000]
    rates = [0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1]
    np.testing.assert_allclose([schedule(s) for s in steps], rates, rtol=1e-5)


@pytest.mark.parametrize(
    "initial, final, step",
    [(0, 0.1, 10), (0.1, -1, 10), (0.1, 0.1, 0), ("a", 0.1, 10)],
)
def test_rates_and_start_step_must_be_positive_numbers(initial, final, step):
    with pytest.raises(ValueError, match="must be a number above 0"):
        SWASchedule(initial, final, swa_start_step=step)
