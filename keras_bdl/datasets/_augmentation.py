"""Crops, flips and rotations of images.

Random functions depend only on the image and a key. A key is the seed of
TensorFlow's stateless operations, an integer tensor of shape `(2,)`. Images
are tensors `(height, width, channels)`.
"""

import math
from typing import Any

import keras
import tensorflow as tf


def resize_with_crop_or_pad(image: Any, image_size: int) -> Any:
    """Returns the central square. A smaller image gets a black frame."""
    return tf.image.resize_with_crop_or_pad(image, image_size, image_size)


def resized_central_crop(
    image: Any, image_size: int, fraction: float = 224 / 256
) -> Any:
    """Cuts out the central square of an image and resizes it.

    The default is the usual evaluation on ImageNet: the shorter side becomes
    256 pixels, and the central 224 x 224 pixels are used.
    """
    height, width = tf.unstack(tf.shape(image)[:2])
    shorter = tf.cast(tf.minimum(height, width), tf.float32)
    side = tf.cast(tf.round(fraction * shorter), tf.int32)
    square = tf.image.crop_to_bounding_box(
        image, (height - side) // 2, (width - side) // 2, side, side
    )
    return resize(square, image_size)


def resize(image: Any, image_size: int) -> Any:
    """Returns the whole image resized to a square, without aliasing."""
    return tf.image.resize(image, (image_size, image_size), antialias=True)


def pad_crop(image: Any, key: Any, image_size: int, padding: int) -> Any:
    """Adds a black frame to an image, and cuts a random square out of both.

    Example:

    ```python
    key = tf.constant([0, 1])
    keras_bdl.extend.pad_crop(tf.zeros((8, 8, 1)), key, 8, padding=1)
    ```
    """
    frame = ((padding, padding), (padding, padding), (0, 0))
    shape = (image_size, image_size, image.shape[-1])
    return tf.image.stateless_random_crop(tf.pad(image, frame), shape, key)


def pad_crop_flip(image: Any, key: Any, image_size: int, padding: int) -> Any:
    """Applies `pad_crop` and mirrors the result with probability 1/2.

    With `padding=4`, an image of 32 x 32 pixels becomes 40 x 40 pixels. The
    function then cuts out a square of `image_size` x `image_size` pixels.

    Reference:
        - [Osawa et al., 2019](https://arxiv.org/abs/1906.02506), section 3
    """
    crop_key, flip_key = tf.unstack(tf.random.split(key))
    image = pad_crop(image, crop_key, image_size, padding)
    return tf.image.stateless_random_flip_left_right(image, flip_key)


def resized_crop_flip(
    image: Any,
    key: Any,
    image_size: int,
    area: tuple[float, float] = (0.08, 1.0),
) -> Any:
    """Resizes a random part of an image and mirrors it at random.

    The part has between `area[0]` and `area[1]` of all pixels. The ratio of
    its sides is between 3/4 and 4/3.

    Reference:
        - [Szegedy et al., 2015](https://arxiv.org/abs/1409.4842), section 6
    """
    crop_key, flip_key = tf.unstack(tf.random.split(key))
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        bounding_boxes=tf.zeros((1, 0, 4)),
        seed=crop_key,
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=area,
        use_image_if_no_bounding_boxes=True,
    )
    part = tf.slice(image, begin, size)
    part.set_shape((None, None, image.shape[-1]))
    image = resize(part, image_size)
    return tf.image.stateless_random_flip_left_right(image, flip_key)


def square_crop_flip(
    image: Any, key: Any, image_size: int, fraction: float = 224 / 256
) -> Any:
    """Resizes a random square of an image and mirrors it at random.

    The length of the square is `fraction` of the shorter side: with the
    default, 224 of 256 pixels.

    Example:

    ```python
    key = tf.constant([0, 1])
    keras_bdl.extend.square_crop_flip(tf.zeros((10, 12, 3)), key, 8)
    ```

    Reference:
        - [Osawa et al., 2019](https://arxiv.org/abs/1906.02506), appendix E
    """
    row_key, column_key, flip_key = tf.unstack(tf.random.split(key, 3))
    height, width = tf.unstack(tf.shape(image)[:2])
    shorter = tf.cast(tf.minimum(height, width), tf.float32)
    side = tf.cast(tf.round(fraction * shorter), tf.int32)
    row, column = (
        tf.random.stateless_uniform((), k, 0, room + 1, tf.int32)
        for k, room in ((row_key, height - side), (column_key, width - side))
    )
    square = tf.image.crop_to_bounding_box(image, row, column, side, side)
    image = resize(square, image_size)
    return tf.image.stateless_random_flip_left_right(image, flip_key)


def random_view(image: Any, key: Any, image_size: int) -> Any:
    """Returns a random view of an image: flipped, rotated, shifted, scaled.

    With all lengths in units of the image size, and uniform distributions,

        flip ~ {-1, 1}^2,  angle ~ [-pi, pi]
        shift = shift_1 + shift_2
        shift_1 ~ [-p, p]^2, p ~ [0, 0.05]          padding and crop      (1)
        shift_2 ~ [-q, q]^2, q = |1 - scale| / 2    place of the crop     (2)
        scale ~ [0.9, 1.1]                          size of the crop      (3)

    The paper resamples the image after each operation. This function composes
    the operations and resamples the image once, so the image stays sharper.

    Reference:
        - [Farquhar et al., 2020](https://arxiv.org/abs/1907.00865),
          appendix D.1
    """
    keys = tf.unstack(tf.random.split(key, 6))

    def uniform(key: Any, low: Any, high: Any, shape: Any = ()) -> Any:
        return tf.random.stateless_uniform(shape, key, low, high)

    coin = tf.random.stateless_uniform((2,), keys[0], 0, 2, tf.int32)
    scale = uniform(keys[1], 0.9, 1.1)  # (3)
    p = uniform(keys[2], 0.0, 0.05)
    q = tf.abs(1.0 - scale) / 2.0
    shift = uniform(keys[3], -p, p, (2,))  # (1)
    shift += uniform(keys[4], -q, q, (2,))  # (2)
    return view(
        resize(image, image_size),
        flip=tf.cast(2 * coin - 1, tf.float32),
        angle=uniform(keys[5], -math.pi, math.pi),
        scale=scale,
        shift=shift,
    )


def view(image: Any, *, flip: Any, angle: Any, scale: Any, shift: Any) -> Any:
    """Flips, rotates, shifts and scales a square image about its centre.

    With `c` the centre and `R` the rotation by `angle`, the pixel at `u` of
    the result is the pixel of the image at

        c + diag(flip) R (scale * (u - c) + shift * size)                 (1)

    or black if this position is outside the image.
    """
    size = image.shape[0]
    centre = (size - 1) / 2
    cosine, sine = tf.cos(angle), tf.sin(angle)
    rotation = tf.stack(((cosine, -sine), (sine, cosine)))
    matrix = tf.reshape(flip, (2, 1)) * rotation
    shift = tf.convert_to_tensor(shift, tf.float32)
    offset = tf.linalg.matvec(matrix, shift * size - scale * centre)
    rows = tf.concat((scale * matrix, (offset + centre)[:, None]), axis=1)
    transform = tf.concat((tf.reshape(rows, (6,)), tf.zeros(2)), axis=0)
    return keras.ops.image.affine_transform(  # (1)
        tf.cast(image, tf.float32), transform, data_format="channels_last"
    )
