import numpy as np
import pytest
import tensorflow as tf
from scipy.ndimage import map_coordinates

from keras_bdl.datasets import _augmentation as augmentation
from tests.helpers import assert_moment


def keys(n):
    return [tf.constant((3, i), tf.int32) for i in range(n)]


def numbered(height, width):
    """Returns an image with a different value in every pixel."""
    rows, columns = np.mgrid[1 : height + 1, 1 : width + 1]
    return np.stack((rows, columns, rows + columns), -1).astype("float32")


@pytest.mark.parametrize("size", [28, 32])
def test_pad_crop_cuts_every_window_out_of_the_padded_image(size):
    image = numbered(32, 32)
    padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
    places = set()
    for key in keys(150):
        crop = augmentation.pad_crop(image, key, size, 4).numpy()
        middle = size // 2
        row, column = crop[middle, middle, :2].astype(int) - 1 + 4 - middle
        np.testing.assert_array_equal(
            crop, padded[row : row + size, column : column + size]
        )
        places |= {("row", row), ("column", column)}
    last = 40 - size
    expected = {(a, i) for a in ("row", "column") for i in range(last + 1)}
    assert places == expected


def test_half_of_the_crops_are_mirrored():
    image = numbered(32, 32)
    crops = [
        augmentation.pad_crop_flip(image, k, 28, 4).numpy() for k in keys(200)
    ]
    mirrored = [c[14, 13, 1] > c[14, 14, 1] for c in crops]
    assert_moment(np.mean(mirrored), 0.5, np.sqrt(0.25 / 200))


def test_evaluation_uses_the_central_224_of_256_pixels():
    image = numbered(256, 384)
    np.testing.assert_allclose(
        augmentation.resized_central_crop(image, 224),
        image[16:240, 80:304],
        atol=1e-4,
    )


def test_resized_crops_keep_to_the_area_and_the_ratio():
    height, width, size = 300, 400, 32
    image = numbered(height, width)
    areas, ratios = [], []
    for key in keys(60):
        crop = augmentation.resized_crop_flip(image, key, size).numpy()
        # The outermost pixels are half a new pixel inside of the edge.
        h = np.ptp(crop[:, 0, 0]) * size / (size - 1)
        w = np.ptp(crop[0, :, 1]) * size / (size - 1)
        areas.append(h * w / (height * width))
        ratios.append(w / h)
    assert 0.08 - 0.01 <= min(areas) < 0.3 and 0.7 < max(areas) <= 1.01
    assert 0.75 - 0.03 <= min(ratios) < 0.85
    assert 1.2 < max(ratios) <= 4 / 3 + 0.03


def test_square_crops_are_224_of_256_pixels_from_anywhere():
    image = numbered(32, 40)  # 28 of 32
    places = set()
    for key in keys(300):
        crop = augmentation.square_crop_flip(image, key, 28).numpy()
        mirrored = crop[0, 0, 1] > crop[0, 1, 1]
        crop = crop[:, ::-1] if mirrored else crop
        row, column = np.round(crop[0, 0, :2]).astype(int) - 1
        window = image[row : row + 28, column : column + 28]
        np.testing.assert_allclose(crop, window, atol=1e-4)
        places |= {("row", row), ("column", column), ("mirrored", mirrored)}
    expected = {("row", i) for i in range(5)}
    expected |= {("column", i) for i in range(13)}
    assert places == expected | {("mirrored", False), ("mirrored", True)}
    # The shorter side becomes 256, whatever the longer one.
    crop = augmentation.square_crop_flip(numbered(128, 96), keys(1)[0], 21)
    assert np.ptp(crop[:, 0, 0]) * 21 / 20 == pytest.approx(84, abs=1)


@pytest.mark.parametrize(
    "augment",
    [
        lambda image, key: augmentation.pad_crop_flip(image, key, 32, 4),
        lambda image, key: augmentation.resized_crop_flip(image, key, 16),
        lambda image, key: augmentation.square_crop_flip(image, key, 16),
    ],
)
def test_one_key_gives_one_image(augment):
    image = numbered(32, 32)
    first, second = keys(2)
    tf.random.set_seed(1)
    once = augment(image, first).numpy()
    tf.random.set_seed(2)
    np.testing.assert_array_equal(augment(image, first), once)
    assert np.any(augment(image, second) != once)


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
