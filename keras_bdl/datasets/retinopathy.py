"""Random views of fundus images."""

import math

import keras
import tensorflow as tf

from keras_bdl.datasets.augmentation import resize


def random_view(image, key, image_size: int):
    """Draws one of the views that the paper trains on.

    With all lengths in units of the image, and every draw uniform,

        flip ~ {-1, 1}^2,  angle ~ [-pi, pi]
        shift = shift_1 + shift_2
        shift_1 ~ [-p, p]^2, p ~ [0, 0.05]          pad, crop back        (1)
        shift_2 ~ [-q, q]^2, q = |1 - scale| / 2    place of the crop     (2)
        scale ~ [0.9, 1.1]                          size of the crop      (3)

    The paper resamples the image after each of these; here they are composed
    and the image is resampled once, which keeps it sharper.

    Reference:
        - [Farquhar et al., 2020](https://arxiv.org/abs/1907.00865),
          appendix D.1
    """
    keys = tf.unstack(tf.random.split(key, 6))

    def uniform(key, low, high, shape=()):
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


def view(image, flip, angle, scale, shift):
    """Flips, rotates, shifts and scales a square image about its centre.

    With `c` the centre and `R` the rotation by `angle`, the pixel at `u` of
    the result is taken from

        c + diag(flip) R (scale * (u - c) + shift * size)                 (1)

    and is black where that is outside the image.

    Args:
        image: Tensor `(size, size, channels)`.
        flip: Two signs: -1 mirrors left to right, and top to bottom.
        angle: In radians.
        scale: How many input pixels one output pixel spans.
        shift: Two numbers, in units of the image: right and down.
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
