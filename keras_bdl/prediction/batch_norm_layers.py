"""The BatchNorm layers of a model, and what they have gathered."""

import keras


def batch_norm_layers(model):
    """Returns the BatchNorm layers that training would update."""
    return [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization)
        and layer.trainable
        and layer.momentum < 1.0
    ]


def moving_statistics(layers):
    """Returns the moving means and variances of BatchNorm layers."""
    return [
        v
        for layer in layers
        for v in (layer.moving_mean, layer.moving_variance)
    ]
