"""The evidence bound of a model whose weights have distributions."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl.distribute._replicas import first_tensor
from keras_bdl.layers._variational import variational_layers


def add_batch_mean(metric, value, x):
    """Updates a metric with the mean of a value over a batch.

    In the last batch, a replica may have no example. The mean is then NaN, and
    does not count.

    Args:
        metric: A `keras.metrics.Mean`.
        value: The mean over the batch.
        x: The inputs, with the examples along their first axis.
    """
    first = first_tensor(x)
    size = ops.shape(first)[0]
    value = ops.where(ops.equal(size, 0), ops.zeros_like(value), value)
    metric.update_state(value, sample_weight=size)


class PriorVersions:
    """Stores the `prior_version` of the layers at the last trace.

    A trace contains the kind of each prior. Models may share layers, so the
    training of one model may change the priors of another model.
    """

    def __init__(self):
        self._versions: dict[str, int] = {}

    def differ(self, model, function: str) -> bool:
        """Returns whether the kinds of priors changed since the last call.

        Args:
            model: The model.
            function: `"train"` or `"test"`. The method compares only calls
                with the same `function`.
        """
        # A layer that is not built has version 0.
        version = sum(one.prior_version for one in variational_layers(model))
        before = self._versions.get(function, version)
        self._versions[function] = version
        return before != version


class EvidenceBound:
    """Adds the KL term to the loss and tracks `nll` and `kl`.

        loss = nll + kl_weight kl + penalties                             (1)

    In training, the layers or the objective add their KL to the loss. In
    evaluation they add no KL, because N may be unknown there. If N is known,
    this class adds the KL, without `kl_weight`.

    Attributes:
        metrics: The metrics `nll`, the mean negative log-likelihood, and
            `kl`, the whole KL divided by N.
    """

    def __init__(self):
        self._nll = keras.metrics.Mean(name="nll")
        self._kl = keras.metrics.Mean(name="kl")
        self.metrics = [self._nll, self._kl]

    def complete(self, model, loss, x, training):
        """Returns the loss with the KL, and updates the metrics.

        Args:
            model: The model, just after the forward pass.
            loss: The loss that Keras computed on this replica, already divided
                by the number of replicas.
            x: The inputs.
            training: Whether the layers were called with `training=True`.
        """
        # A layer has no weights before its first call.
        layers = [one for one in variational_layers(model) if one.built]
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        added = sum(ops.cast(one, "float32") for one in model.losses)
        nll = ops.cast(loss, "float32") * replicas - added
        if training:
            # A model with several heads may call only some of them.
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
            nll: Mean negative log-likelihood of the batch.
            kl: KL divided by N, or `None` if N is unknown.
        """
        add_batch_mean(self._nll, nll, x)
        if kl is not None:
            add_batch_mean(self._kl, kl, x)


def _not_in_training(model, layer):
    return (
        "A training step must call variational layers with `training=True`, "
        "so that they draw their weights. Give the `call` of your model the "
        "argument `training=None`: Keras sets it to `True` in training. "
        f"Received: {type(model).__name__} {model.name!r}, whose layer "
        f"{layer.name!r} was called without `training=True`"
    )


def divergences(model) -> list[tuple[DatasetSize, Callable]]:
    """Returns, for each KL of a model, N and the function that computes it."""
    found: list[tuple[DatasetSize, Callable]] = [
        (layer.dataset_size, layer.kl_divergence)
        for layer in variational_layers(model)
        if layer.built
    ]
    objective: Any = getattr(model, "objective", None)
    if hasattr(type(objective), "kl_divergence"):
        kl = functools.partial(objective.kl_divergence, model)
        found.append((objective.dataset_size, kl))
    return found
