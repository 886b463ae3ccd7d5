"""Networks for digits that replace those of the papers."""

import dataclasses
import functools

import keras

import keras_bdl as bdl
from keras_bdl import applications
from keras_bdl import extend


def _convolutional(
    input_shape, classes, filters=(8, 16), units=(32,), norm=False
):
    """Returns convolutions of size 3 with strides 2, then dense layers."""
    inputs = x = keras.Input(input_shape)
    for number in filters:
        x = keras.layers.Conv2D(
            number, 3, 2, padding="same", use_bias=not norm
        )(x)
        if norm:
            x = keras.layers.BatchNormalization()(x)
        x = keras.layers.Activation("relu")(x)
    x = keras.layers.Flatten()(x)
    for number in units:
        x = keras.layers.Dense(number, "relu")(x)
    return bdl.Model(inputs, keras.layers.Dense(classes)(x))


def _global_pooling(input_shape, classes, filters=16, strides=1):
    """Returns convolutions, then the mean and the maximum of each map."""
    inputs = x = keras.Input(input_shape)
    for number in (filters, 2 * filters):
        x = keras.layers.Conv2D(
            number, 3, strides, padding="same", activation="relu"
        )(x)
    pooled = [
        keras.layers.GlobalAveragePooling2D()(x),
        keras.layers.GlobalMaxPooling2D()(x),
    ]
    x = keras.layers.Concatenate()(pooled)
    return bdl.Model(inputs, keras.layers.Dense(classes)(x))


def one_layer(input_shape, classes, units=200):
    """Returns one hidden layer of ReLUs.

    Args:
        input_shape: Shape of an input.
        classes: Number of classes.
        units: Number of hidden units. Defaults to `200`.
    """
    inputs = keras.Input(input_shape)
    x = keras.layers.Flatten()(inputs)
    x = keras.layers.Dense(units, "relu")(x)
    return bdl.Model(inputs, keras.layers.Dense(classes)(x))


def _tiny(input_shape, classes):
    """Returns a network with one layer of each kind, for `--scale smoke`."""
    inputs = keras.Input(input_shape)
    x = keras.layers.Conv2D(4, 3, 2, use_bias=False)(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Activation("softplus")(x)
    x = keras.layers.Flatten()(x)
    return bdl.Model(inputs, keras.layers.Dense(classes)(x))


def _strided(depth):
    """Returns the architecture of a ResNet whose first layer has strides."""
    architecture = extend.Architecture.of_depth(depth)
    stem = dataclasses.replace(architecture.stem, strides=2)
    return dataclasses.replace(architecture, stem=stem)


# Networks that learn digits.
SUBSTITUTES = {
    "convolutions": _convolutional,
    "wide convolutions": functools.partial(
        _convolutional, filters=(16, 32), units=(64,)
    ),
    "convolutions with BatchNorm": functools.partial(
        _convolutional, filters=(16, 32), norm=True
    ),
    "convolutions, global pooling": _global_pooling,
    "one layer": functools.partial(one_layer, units=50),
    "ResNet-8": functools.partial(applications.ResNet, 8, filters=8),
    "PreActResNet-8": functools.partial(
        applications.PreActResNet, 8, filters=8
    ),
    "wide PreActResNet-8": functools.partial(
        applications.PreActResNet, 8, filters=16
    ),
    "PreActResNet-8, softplus": functools.partial(
        applications.PreActResNet, 8, filters=8, activation="softplus"
    ),
    "ResNet++-8": functools.partial(applications.ResNetPlusPlus, 8, filters=8),
    "tiny": _tiny,
    # For MNIST. The first layer of the ResNets has strides of 2.
    "LeNet-5": applications.LeNet5,
    "three convolutions with BatchNorm": functools.partial(
        _convolutional, filters=(16, 32, 64), norm=True
    ),
    "strided convolutions, global pooling": functools.partial(
        _global_pooling, strides=2
    ),
    "strided ResNet-8": functools.partial(
        applications.ResNet, _strided(8), filters=8
    ),
    "strided PreActResNet-20": functools.partial(
        applications.PreActResNet, _strided(20), filters=8
    ),
    "strided PreActResNet-8, softplus": functools.partial(
        applications.PreActResNet,
        _strided(8),
        filters=8,
        activation="softplus",
    ),
    "strided ResNet++-8": functools.partial(
        applications.ResNetPlusPlus, _strided(8), filters=8
    ),
}
