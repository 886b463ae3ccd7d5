"""`corrupt` shifts images by what its table says."""

import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl

KINDS = ("rotation", "translation", "blur", "noise", "contrast")
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(6, 20, 20, 2)).astype("float32")
DATA = tf.data.Dataset.from_tensor_slices(IMAGES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_severity_moves_images_further(kind):
    y, x = np.mgrid[:20, :20] / 20
    smooth = np.stack([np.sin(5 * x + y), np.cos(3 * y)], -1)[None]
    smooth = smooth.repeat(50, 0).astype("float32")
    distances = [
        np.square(bdl.datasets.corrupt(smooth, kind, severity) - smooth).mean()
        for severity in range(1, 6)
    ]
    assert np.all(np.diff([0.0, *distances]) > 0)


def test_a_spot_is_turned_by_the_angle():
    y, x = np.mgrid[:41, :41] - 20
    # To the right of the centre, at a distance of 12.
    spot = np.exp(-((x - 12) ** 2 + y**2) / 8).astype("float32")
    images = spot[None, ..., None].repeat(40, 0)
    turned = bdl.datasets.corrupt(images, "rotation", 3)[..., 0]
    centres = (turned * y).sum((1, 2)), (turned * x).sum((1, 2))
    angles = np.degrees(np.arctan2(*centres))
    np.testing.assert_allclose(np.abs(angles), 30, atol=0.1)
    assert {-1, 1} == set(np.sign(angles))


def test_noise_blur_and_contrast_have_the_stated_strength():
    flat = np.full((200, 20, 20, 1), 0.5, "float32")
    flat[0, 0, 0], flat[0, 0, 1] = -9.5, 10.5  # a range of 20
    noise = bdl.datasets.corrupt(flat, "noise", 1)[1:] - 0.5
    assert abs(noise.std() / (0.08 * 20) - 1) < 5 / np.sqrt(2 * noise.size)
    point = np.zeros((1, 41, 41, 1), "float32")
    point[0, 20, 20] = 1.0
    spot = bdl.datasets.corrupt(point, "blur", 3)[0, ..., 0]
    variance = (spot * np.square(np.arange(41) - 20)).sum() / spot.sum()
    np.testing.assert_allclose(variance, (0.06 * 41) ** 2, rtol=0.02)
    pale = bdl.datasets.corrupt(IMAGES, "contrast", 2)
    np.testing.assert_allclose(
        pale.std((1, 2)), 0.3 * IMAGES.std((1, 2)), rtol=1e-5
    )


def test_seed_selects_the_result_and_the_range_is_kept():
    one, same, other = (
        bdl.datasets.corrupt(IMAGES, "noise", seed=seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert np.any(one != other)
    assert one.min() >= IMAGES.min() and one.max() <= IMAGES.max()
    pixels = RNG.integers(0, 256, (2, 8, 8, 3)).astype("uint8")
    assert bdl.datasets.corrupt(pixels, "rotation").dtype == "uint8"


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_any_size_hold_the_images_of_the_array(kind):
    expected = bdl.datasets.corrupt(IMAGES, kind, seed=3)
    assert np.any(expected != IMAGES)
    source = tf.data.Dataset.from_tensor_slices((IMAGES, np.arange(6)))
    for size in (1, 4):
        data = bdl.datasets.corrupt(source.batch(size), kind, seed=3)
        assert data.cardinality() == len(source.batch(size))
        for _ in range(2):  # a second reading begins anew
            batches = list(data)
            x, y = (np.concatenate(part) for part in zip(*batches, strict=True))
            np.testing.assert_allclose(x, expected, atol=1e-6)
            assert y.tolist() == list(range(6))
    alone = source.map(lambda x, y: x).batch(4).repeat()
    alone = bdl.datasets.corrupt(alone, kind, seed=3, value_range=(-9, 9))
    assert next(iter(alone)).shape == (4, 20, 20, 2)


@pytest.mark.parametrize(
    ("images", "arguments", "message"),
    [
        (IMAGES, {"kind": "fog"}, "`kind` must be one of"),
        (IMAGES, {"kind": "blur", "severity": 6}, "`severity` must be"),
        (IMAGES[0], {"kind": "blur"}, "height, width, channels"),
        (DATA, {"kind": "blur"}, r"Call `images.batch\(32\)`"),
        (DATA.batch(2).repeat(), {"kind": "blur"}, "without an end"),
        (IMAGES, {"kind": "blur", "value_range": (1, 0)}, "a pair of the low"),
        (np.where(IMAGES > 2, np.nan, IMAGES), {"kind": "blur"}, "NaN or inf"),
    ],
)
def test_wrong_arguments_are_refused(images, arguments, message):
    with pytest.raises(ValueError, match=message):
        bdl.datasets.corrupt(images, **arguments)
