"""The loss of a model on the batches of its training data, compiled."""

import contextlib
import dataclasses
import weakref

import keras
import tensorflow as tf

from keras_bdl.data.checked_inputs import check_model
from keras_bdl.diagnostics.compiled_loss import check_loss
from keras_bdl.diagnostics.compiled_loss import compiled_loss
from keras_bdl.diagnostics.compiled_loss import loss_reference
from keras_bdl.diagnostics.compiled_loss import mean_loss
from keras_bdl.distribute.restored import restored
from keras_bdl.posteriors.posterior import check_built
from keras_bdl.prediction.model_cache import ModelCache
from keras_bdl.prediction.traced import traced

_CACHE = ModelCache()


@dataclasses.dataclass
class BatchLoss:
    """What a model makes of a batch.

    Attributes:
        loss: The mean loss of the examples.
        penalty: Regularizers and other losses of layers.
        outputs: Those of the model.
        y: The targets, tensors.
        examples: How many examples there are, a tensor of float32.
    """

    loss: object
    penalty: object
    outputs: object
    y: object
    examples: object


class TrainingLoss:
    """Base of what is done with the loss of batch after batch.

    A subclass defines `_step`, a function of a batch and of tensors, which is
    traced once for all batches and calls.

    Args:
        model: A built Keras model.
        loss: As `compile` takes it, or `None`: the one it is compiled with.
        training: Whether the model is called as in training.
    """

    def __init__(self, model, loss, training: bool):
        self._model = weakref.ref(model)
        self._training = training
        # Held, as the loss of a compiled model is.
        self._given = loss
        self._loss = None if loss is None else compiled_loss(loss)
        self._function = traced(model, self._step)

    @classmethod
    def of(cls, model, loss, training: bool):
        """Returns that of a model, the one it had if there is one."""
        check_model(model)
        check_built(model)
        check_loss(model, loss)
        _check_weights(model)
        weights = tuple(id(v) for v in model.trainable_variables)
        key = (cls, training, weights, loss_reference(loss))
        return _CACHE.get(model, key, lambda: cls(model, loss, training))

    def __call__(self, batch, *args):
        """Returns `_step` of the inputs of a `Batch` and other tensors."""
        return self._function(batch.inputs, *args)

    def _step(self, batch, *args):
        raise NotImplementedError

    @property
    def model(self):
        """The model, which is not held."""
        return self._model()

    def forward(self, batch) -> BatchLoss:
        """Returns the loss of a batch, and what else came out.

        Args:
            batch: A dict of `"x"`, `"y"` and perhaps `"weight"`.
        """
        model = self._model()
        batch = keras.tree.map_structure(tf.convert_to_tensor, batch)
        x, y = batch["x"], batch["y"]
        if model._call_has_training_arg:
            outputs = model(x, training=self._training)
        else:
            outputs = model(x)
        loss = mean_loss(
            self._loss or model._compile_loss, y, outputs, batch.get("weight")
        )
        penalties = [
            tf.reduce_sum(tf.cast(one, "float32")) for one in model.losses
        ]
        return BatchLoss(
            loss=tf.cast(loss, "float32"),
            penalty=tf.add_n(penalties) if penalties else tf.constant(0.0),
            outputs=outputs,
            y=y,
            examples=tf.cast(tf.shape(keras.tree.flatten(x)[0])[0], "float32"),
        )


@contextlib.contextmanager
def left_as_it_was(model):
    """Puts back in the end all that a model holds, its losses included.

    Yields:
        A function that puts it back at once.
    """
    with restored(model.variables) as restore:
        try:
            yield restore
        finally:
            # Tensors of a trace, which would outlive it.
            model._clear_losses()


def _check_weights(model):
    layers = [
        layer.name
        for layer in model._flatten_layers()
        if hasattr(type(layer), "kl_divergence")
    ]
    if layers:
        raise ValueError(
            "`model` must have ordinary weights, and not distributions of "
            f"them. Received: layers {layers} of model={model.name!r}"
        )
    if not model.trainable_variables:
        raise ValueError(
            "`model` must have trainable weights. "
            f"Received: model={model.name!r} without one"
        )
