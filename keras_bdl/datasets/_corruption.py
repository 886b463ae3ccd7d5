"""Images that are shifted away from those of the training."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_seed

_STRENGTHS = {
    "rotation": (10, 20, 30, 45, 60),
    "translation": (0.04, 0.08, 0.12, 0.18, 0.25),
    "blur": (0.02, 0.04, 0.06, 0.08, 0.1),
    "noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
}


def corrupt(
    images: Any,
    kind: str,
    severity: int = 3,
    *,
    seed: int = 0,
    value_range: tuple[float, float] | None = None,
) -> Any:
    """Returns images that are turned, moved, blurred or noisy.

    Use this function to see how a model behaves when its inputs change: a good
    posterior becomes less certain as it becomes less accurate. The labels stay
    the same. The severities mean:

    | kind | 1 | 2 | 3 | 4 | 5 |
    |---|---|---|---|---|---|
    | `"rotation"`, degrees to either side | 10 | 20 | 30 | 45 | 60 |
    | `"translation"`, share of the width | 0.04 | 0.08 | 0.12 | 0.18 | 0.25 |
    | `"blur"`, stddev as share of the width | 0.02 | 0.04 | 0.06 | 0.08 | 0.1 |
    | `"noise"`, stddev as share of range | 0.08 | 0.12 | 0.18 | 0.26 | 0.38 |
    | `"contrast"`, what is left of it | 0.4 | 0.3 | 0.2 | 0.1 | 0.05 |

    No value leaves the range. Borders repeat the outermost pixels. Noise and
    contrast are as strong as in ImageNet-C. The result of an image depends on
    the seed and on its place among all images, not on the size of a batch.

    Args:
        images: An array `(n, height, width, channels)` of any range, or a
            batched `tf.data.Dataset` of images or of tuples `(images, ...)`.
        kind: `"rotation"`, `"translation"`, `"blur"`, `"noise"` or
            `"contrast"`.
        severity: From 1 to 5. Defaults to `3`.
        seed: Selects directions and noise. Defaults to `0`.
        value_range: Lowest and highest value of a pixel. Defaults to `None`,
            those in `images`. A data set is then read once to find them.

    Returns:
        Images in the form of `images`, in their dtype.

    Example:

    ```python
    digits = keras_bdl.datasets.load("digits")
    turned = keras_bdl.datasets.corrupt(digits.test[0], "rotation", severity=3)
    ```

    Reference:
        - Hendrycks and Dietterich, [Benchmarking Neural Network Robustness to
          Common Corruptions and Perturbations](
          https://arxiv.org/abs/1903.12261)
    """
    check_choice("kind", kind, tuple(_STRENGTHS))
    check_number("severity", severity, at_least=1, at_most=5, integer=True)
    check_seed(seed)
    strength = _STRENGTHS[kind][severity - 1]

    if not isinstance(images, tf.data.Dataset):
        images = np.asarray(images)
        if images.ndim != 4:
            raise ValueError(
                "`images` must have the axes (n, height, width, channels). "
                f"Received: images of shape {images.shape}"
            )
        bounds = _bounds(value_range, [images])
        rng = np.random.default_rng([seed, 0])
        return _corrupted(images, kind, strength, rng, bounds)

    _check_data(images, value_range)
    every = (_parts(batch)[0] for batch in images.as_numpy_iterator())
    bounds = _bounds(value_range, every)

    def batches() -> Iterator[Any]:
        # One stream for all batches.
        rng = np.random.default_rng([seed, 0])
        for batch in images.as_numpy_iterator():
            x, *others = _parts(batch)
            x = _corrupted(x, kind, strength, rng, bounds)
            yield (x, *others) if isinstance(batch, tuple) else x

    found = tf.data.Dataset.from_generator(
        batches, output_signature=images.element_spec
    )
    count = images.cardinality()
    if count == tf.data.UNKNOWN_CARDINALITY:
        return found
    return found.apply(tf.data.experimental.assert_cardinality(count))


def _check_data(data: Any, value_range: Any) -> None:
    spec = _parts(data.element_spec)[0]
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank not in (None, 4):
        raise ValueError(
            "`images` must be a data set of batches of images, with the axes "
            "(n, height, width, channels), alone or first in a tuple. Call "
            "`images.batch(32)` if the elements are single images. "
            f"Received: elements of {data.element_spec}"
        )
    infinite = data.cardinality() == tf.data.INFINITE_CARDINALITY
    if infinite and value_range is None:
        raise ValueError(
            "`value_range` must be given for a data set without an end. "
            "Received: value_range=None"
        )


def _parts(element: Any) -> Any:
    return element if isinstance(element, tuple) else (element,)


def _bounds(value_range: Any, batches: Any) -> Any:
    """Returns the lowest and the highest value, after a check."""
    if value_range is None:
        lowest, highest = np.inf, -np.inf
        for batch in batches:
            _check_finite(batch)
            if batch.size:
                lowest = min(lowest, float(batch.min()))
                highest = max(highest, float(batch.max()))
        return lowest, highest
    if np.shape(value_range) == (2,) and value_range[0] < value_range[1]:
        return tuple(value_range)
    raise ValueError(
        "`value_range` must be a pair of the lowest and the highest value. "
        f"Received: value_range={value_range!r}"
    )


def _check_finite(images: np.ndarray) -> None:
    if not np.isfinite(images).all():
        raise ValueError(
            "`images` must hold finite numbers. Find the cause of the others. "
            f"Received: {int(np.sum(~np.isfinite(images)))} pixels that are "
            "NaN or infinite"
        )


def _corrupted(
    images: np.ndarray,
    kind: str,
    strength: float,
    rng: np.random.Generator,
    bounds: tuple[float, float],
) -> np.ndarray:
    _check_finite(images)
    lowest, highest = map(np.float32, bounds)
    values = images.astype("float32")
    found = _changed(values, kind, strength, rng, highest - lowest)
    found = np.clip(found, lowest, highest)
    if np.issubdtype(images.dtype, np.integer):
        found = np.rint(found)
    return found.astype(images.dtype)


def _changed(
    images: np.ndarray,
    kind: str,
    strength: float,
    rng: np.random.Generator,
    spread: Any,
) -> np.ndarray:
    from scipy import ndimage

    width = images.shape[2]
    if kind == "noise":
        noise = rng.standard_normal(images.shape, dtype="float32")
        return images + strength * spread * noise
    if kind == "contrast":
        mean = images.mean(axis=(1, 2), keepdims=True)
        return mean + strength * (images - mean)
    if kind == "blur":
        stddev = strength * width
        return ndimage.gaussian_filter(
            images, (0, stddev, stddev, 0), mode="nearest"
        )
    found = np.empty_like(images)
    for i, image in enumerate(images):
        if kind == "rotation":
            angle = rng.choice([-strength, strength])
            found[i] = ndimage.rotate(
                image, angle, reshape=False, order=1, mode="nearest"
            )
        else:
            angle = rng.uniform(0, 2 * np.pi)
            by = strength * width * np.array([np.sin(angle), np.cos(angle), 0])
            found[i] = ndimage.shift(image, by, order=1, mode="nearest")
    return found
