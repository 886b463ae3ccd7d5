import numpy as np
import pytest
import tensorflow as tf
from scipy.ndimage import map_coordinates

from keras_bdl.datasets import _augmentation as augmentation
from tests.helpers import assert_moment


def transcription(image, flip, angle, scale, shift):
    """Equation (1) of `view`, pixel by pixel."""
    size = len(image)
    c = (size - 1) / 2
    rotation = np.array(
        [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    )
    y, x = np.mgrid[:size, :size]
    u = np.stack((x, y)).reshape(2, -1) - c
    moved = scale * u + np.reshape(shift, (2, 1)) * size
    x, y = c + np.diag(flip) @ rotation @ moved
    return map_coordinates(
        image[..., 0], (y, x), order=1, mode="grid-constant"
    ).reshape(size, size, 1)


@pytest.mark.parametrize(
    "parameters",
    [
        ((1, 1), 0.0, 1.0, (0.0, 0.0)),
        ((-1, 1), 0.0, 1.0, (0.0, 0.0)),
        ((1, 1), np.pi / 2, 1.0, (0.0, 0.0)),
        ((1, 1), 0.0, 1.1, (0.1, 0.0)),
        ((1, -1), 0.4, 0.92, (0.03, -0.06)),
    ],
)
def test_view_follows_its_equation(parameters):
    image = np.random.default_rng(0).random((16, 16, 1), "float32")
    flip, angle, scale, shift = parameters
    actual = augmentation.view(
        image,
        flip=tf.constant(flip, tf.float32),
        angle=angle,
        scale=scale,
        shift=shift,
    )
    np.testing.assert_allclose(
        actual, transcription(image, *parameters), atol=1e-4
    )


def test_flip_mirrors_left_to_right():
    image = np.random.default_rng(0).random((8, 8, 3), "float32")
    actual = augmentation.view(
        image, flip=(-1.0, 1.0), angle=0.0, scale=1.0, shift=(0.0, 0.0)
    )
    np.testing.assert_allclose(actual, image[:, ::-1], atol=1e-5)


def test_random_views_keep_to_the_ranges_of_the_paper(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        augmentation, "view", lambda image, **draws: drawn.append(draws)
    )
    n = 150
    for i in range(n):
        key = tf.constant((0, i), tf.int32)
        augmentation.random_view(np.zeros((4, 4, 3), "float32"), key, 4)
    flip, angle, scale, shift = (
        np.array([d[name] for d in drawn])
        for name in ("flip", "angle", "scale", "shift")
    )
    assert set(flip.ravel()) == {-1.0, 1.0}
    assert_moment(flip.mean(0), 0.0, 1 / np.sqrt(n))
    assert_moment(angle.mean(), 0.0, 2 * np.pi / np.sqrt(12 * n))
    assert -np.pi <= angle.min() < -2.9 and 2.9 < angle.max() <= np.pi
    assert 0.9 <= scale.min() < 0.92 and 1.08 < scale.max() <= 1.1
    limit = 0.05 + np.abs(1 - scale)[:, None] / 2
    assert np.all(np.abs(shift) <= limit) and np.abs(shift).max() > 0.05
