"""Shows a model the images of another data set than its own."""

import tensorflow as tf

from keras_bdl.datasets.augmentation import resized_central_crop


def decoder(reader, stored, target):
    """Returns a function that makes an image of `target` of an encoded one.

    It has the channels and, before any crop, the size of the images that the
    model was trained on.

    Args:
        reader: A `TFDSReader`.
        stored: `DatasetSpec` of what is read.
        target: `DatasetSpec` of what the model knows.
    """

    def decode(encoded):
        image = reader.decode(encoded)
        if stored.channels < target.channels:
            image = tf.image.grayscale_to_rgb(image)
        if stored.channels > target.channels:
            image = tf.image.rgb_to_grayscale(image)
        if target.stored_size not in (None, stored.stored_size):
            image = resized_central_crop(image, target.stored_size, 1.0)
        return image

    return decode
