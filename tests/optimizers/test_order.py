import pytest

from examples.benchmarks.step_size_bias import observed_order
from examples.benchmarks.step_size_bias import variance_bias
from keras_bdl.optimizers import ATMC


@pytest.mark.parametrize("noise_variance", [0.0, 5.0])
@pytest.mark.parametrize("max_speed", [None, 1.0], ids=["gaussian", "limit"])
def test_bias_falls_with_the_square_of_the_step_size(max_speed, noise_variance):
    coarse, fine = (
        variance_bias(
            ATMC,
            step_size,
            max_speed=max_speed,
            noise_variance=noise_variance,
            weight_steps=6e6 / step_size,
        )
        for step_size in (0.4, 0.2)
    )
    observed, error = observed_order(coarse, fine)
    # Nearer to this order than to any other, by five standard errors.
    assert abs(observed - 2) + 5 * error < 0.5
