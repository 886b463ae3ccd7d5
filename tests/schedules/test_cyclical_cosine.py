import keras
import numpy as np
import pytest

from keras_bdl.schedules import CyclicalCosine
from tests.helpers import check_config


def test_config_has_every_argument():
    check_config(CyclicalCosine, initial_learning_rate=0.5, cycle_steps=7)


def test_values_equal_the_formula_in_every_cycle():
    schedule = CyclicalCosine(0.2, cycle_steps=5)
    for step in [0, 1, 4, 5, 9, 10**9 + 3]:
        expected = 0.1 * (1 + np.cos(np.pi * (step % 5) / 5))
        np.testing.assert_allclose(
            schedule(keras.ops.convert_to_tensor(step)), expected, rtol=1e-6
        )
    assert float(schedule(0)) == pytest.approx(0.2)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="cycle_steps=0.5"):
        CyclicalCosine(0.1, 0.5)
    with pytest.raises(ValueError, match="initial_learning_rate=0"):
        CyclicalCosine(0, 5)
