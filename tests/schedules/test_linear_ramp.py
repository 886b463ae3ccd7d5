import keras
import numpy as np
import pytest

from keras_bdl.schedules import LinearRamp
from tests.helpers import check_config


def test_config_has_every_argument():
    check_config(
        LinearRamp, initial_value=0.5, final_value=2.0, end_step=7, start_step=3
    )


def test_values_follow_a_straight_line_between_two_levels():
    ramp = LinearRamp(0.5, 2.0, end_step=12, start_step=2)
    steps = [0, 2, 3, 7, 12, 10**9]
    values = [float(ramp(keras.ops.convert_to_tensor(s))) for s in steps]
    np.testing.assert_allclose(values, [0.5, 0.5, 0.65, 1.25, 2.0, 2.0])


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="`end_step` must be a number above 5"):
        LinearRamp(0.0, 1.0, end_step=5, start_step=5)
    with pytest.raises(ValueError, match="final_value=nan"):
        LinearRamp(0.0, float("nan"), end_step=5)
