"""The loss of a model on the batches of its training data, compiled."""

import contextlib
import dataclasses
import weakref

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl.data.checked_inputs import check_model
from keras_bdl.distribute.variable_copies import restored
from keras_bdl.layers.variational_layers import variational_layers
from keras_bdl.likelihoods.loss_check import check_reductions
from keras_bdl.likelihoods.loss_check import one_value_each
from keras_bdl.posteriors.posterior import check_built
from keras_bdl.prediction.traced import ModelCache
from keras_bdl.prediction.traced import traced

_OWNER = "this diagnostic"


def check_loss(model, loss):
    """Raises an error unless there is a loss, given or compiled, with a mean.

    Args:
        model: A Keras model.
        loss: As `compile` takes it, or `None`: the one it is compiled with.
    """
    loss = getattr(model, "loss", None) if loss is None else loss
    check_reductions(_OWNER, loss)
    if loss is None:
        raise ValueError(
            "`loss` must be the negative log-likelihood where the model is "
            "not compiled with one. Received: loss=None"
        )


def compiled_loss(loss):
    """Returns the function that a model compiled with this loss calls."""
    # By an empty model: Keras has no public way to it, and this one cares
    # for names, functions, several outputs, and targets without a last axis.
    model = keras.Sequential()
    model.compile("sgd", loss)
    return _keras.compile_loss(model)


def mean_loss(compile_loss, y, y_pred, sample_weight=None):
    """Returns the mean loss of a batch, from one value for each example.

    Args:
        compile_loss: What `compiled_loss` returned, or that of a model.
        y: The targets.
        y_pred: The outputs.
        sample_weight: The weights of the examples. Defaults to `None`.
    """
    with one_value_each(_OWNER, compile_loss):
        return compile_loss(y, y_pred, sample_weight)


def loss_reference(loss):
    """Returns what equals that of the same loss, and does not hold it."""
    try:
        return weakref.ref(loss)
    except TypeError:  # a string, list or dict, which is equal to its like
        return loss


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
        outputs = _keras.call_with_training(model, x, self._training)
        loss = mean_loss(
            self._loss or _keras.compile_loss(model),
            y,
            outputs,
            batch.get("weight"),
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
            _keras.clear_losses(model)


def _check_weights(model):
    layers = [layer.name for layer in variational_layers(model)]
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
