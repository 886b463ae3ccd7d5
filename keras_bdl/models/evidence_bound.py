"""The evidence bound of a model whose weights have distributions."""

import functools

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras


def add_batch_mean(metric, value, x):
    """Updates a metric by the mean of a value over a batch.

    The last batch may leave a replica without an example. The mean there is
    NaN, and does not count.

    Args:
        metric: A `keras.metrics.Mean`.
        value: The mean over the batch.
        x: The inputs, whose first axis is that of the examples.
    """
    first = next(i for i in keras.tree.flatten(x) if i is not None)
    size = ops.shape(first)[0]
    value = ops.where(ops.equal(size, 0), ops.zeros_like(value), value)
    metric.update_state(value, sample_weight=size)


class PriorVersions:
    """Remembers the `prior_version` of layers when functions were made.

    A trace has the kind of each prior built in. Where models share layers,
    priors may change while another model is trained.
    """

    def __init__(self):
        self._versions = {}

    def differ(self, model, function: str) -> bool:
        """Returns whether priors are of other kinds than at the last call.

        Args:
            model: The model.
            function: Name of the function that is to be made.
        """
        # 0 for layers that are not built yet.
        version = sum(
            getattr(layer, "prior_version", 0)
            for layer in _keras.all_layers(model)
        )
        before = self._versions.get(function, version)
        self._versions[function] = version
        return before != version


class EvidenceBound:
    """Keeps `loss = nll + kl_weight kl + penalties` and its parts in view.

    In training the layers, or the objective, add their KL to the loss
    themselves. In evaluation they do not, since Keras evaluates without asking
    for N; where N is known, it is added here, without `kl_weight`.

    Attributes:
        metrics: The parts as metrics: `nll`, the mean negative log-likelihood,
            and `kl`, the whole KL by N.
    """

    def __init__(self):
        self._nll = keras.metrics.Mean(name="nll")
        self._kl = keras.metrics.Mean(name="kl")
        self.metrics = [self._nll, self._kl]

    def complete(self, model, loss, x, training):
        """Returns the loss with the KL in it, and updates the metrics.

        Args:
            model: The model; the forward pass has just been done.
            loss: This replica's share of the mean loss, as Keras computes it.
            x: The inputs.
            training: Whether the layers were called with `training=True`.
        """
        # A layer that nothing has called yet has no weights.
        layers = [one for one in variational_layers(model) if one.built]
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        added = sum(ops.cast(one, "float32") for one in model.losses)
        nll = ops.cast(loss, "float32") * replicas - added
        if training:
            # Of several heads on one body, some are not called.
            kls = [layer.kl_per_example for layer in layers]
            kls = [kl for kl in kls if kl is not None]
            if not kls:
                raise ValueError(_not_in_training(model, layers[0]))
            kl = sum(kls)
        elif all(size.known for size, _ in divergences(model)):
            kl = sum(kl() / size.value() for size, kl in divergences(model))
            loss = loss + ops.cast(kl / replicas, loss.dtype)
        else:
            kl = None
        self.update(x, nll, kl)
        return loss

    def update(self, x, nll, kl):
        """Updates the metrics after a batch.

        Args:
            x: The inputs.
            nll: The mean over the batch.
            kl: The KL by N, or `None`.
        """
        add_batch_mean(self._nll, nll, x)
        if kl is not None:
            add_batch_mean(self._kl, kl, x)


def _not_in_training(model, layer):
    return (
        "A training step must call the variational layers with "
        "`training=True`, for their weights to be drawn. Give the `call` of "
        "your model the argument `training=None`, without which Keras trains "
        "it as if it were to predict. "
        f"Received: {type(model).__name__} {model.name!r}, whose layer "
        f"{layer.name!r} has drawn nothing"
    )


def divergences(model):
    """Returns pairs of a `DatasetSize` and a function that returns a KL."""
    found = [
        (layer.dataset_size, layer.kl_divergence)
        for layer in variational_layers(model)
        if layer.built
    ]
    objective = getattr(model, "objective", None)
    if hasattr(type(objective), "kl_divergence"):
        kl = functools.partial(objective.kl_divergence, model)
        found.append((objective.dataset_size, kl))
    return found


def variational_layers(model):
    """Returns the layers of a model that have a KL, each once."""
    return [
        layer
        for layer in _keras.all_layers(model)
        if hasattr(type(layer), "kl_divergence")
    ]
