import numpy as np
import pytest

from keras_bdl.posteriors import Gaussian
from tests.helpers import assert_moment

MEAN = [np.array([[1.0, -2.0]]), np.array(3.0)]
VARIANCE = [np.array([[4.0, 0.0]]), np.array(0.25)]
N = 4000


def test_draws_have_the_moments_and_consecutive_seeds_are_independent():
    posterior = Gaussian(MEAN, VARIANCE, scale=2.0)
    draws = [posterior.sample(seed) for seed in range(N)]
    for i, (m, v) in enumerate(zip(MEAN, VARIANCE, strict=True)):
        x = np.stack([d[i] for d in draws])
        v = 2.0 * v
        assert_moment(x.mean(0), m, np.sqrt(v.max() / N))
        assert_moment(x.var(0), v, v.max() * np.sqrt(2 / N))
        products = (x[1:] - m) * (x[:-1] - m)
        assert_moment(products.mean(0), 0.0, v.max() / np.sqrt(N))


@pytest.mark.parametrize(
    "posterior",
    [Gaussian(MEAN), Gaussian(MEAN, VARIANCE).with_scale(0.0)],
    ids=["no variance", "scale 0"],
)
def test_without_variance_every_draw_is_the_mean(posterior):
    for seed in range(2):
        for x, m in zip(posterior.sample(seed), MEAN, strict=True):
            np.testing.assert_array_equal(x, m)


@pytest.mark.parametrize(
    ("mean", "variance", "scale", "match"),
    [
        ([np.nan], None, 1.0, r"`mean` must be finite.*mean\[0\]"),
        ([1.0], [np.inf], 1.0, r"`variance` must be finite"),
        ([1.0], [-1e-6], 1.0, r"must not be negative. Received: -1e-06"),
        ([1.0], [1.0], -0.5, r"`scale` must.*Received: scale=-0.5"),
        ([1.0], [1.0], np.nan, "`scale` must"),
        ([1.0], [[1.0, 2.0]], 1.0, r"of shape \(2,\), expected \(\)"),
        (
            [1.0],
            [1.0],
            "a",
            "`scale` must be a number of at least 0.0.*scale='a'",
        ),
        ([], None, 1.0, "`mean` must have at least one"),
        (np.zeros((2, 3)), None, 1.0, "`mean` must be a list.*ndarray"),
        ([1.0], [1.0, 1.0], 1.0, "one array for each array of `mean`.*2 for 1"),
    ],
)
def test_wrong_moments_are_refused(mean, variance, scale, match):
    with pytest.raises(ValueError, match=match):
        Gaussian(mean, variance, scale=scale)
