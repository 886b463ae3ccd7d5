"""The training loss of a model, batch by batch, as a compiled step."""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Loss
from keras_bdl.distribute._replicas import restored
from keras_bdl.layers._variational import sampling_layers
from keras_bdl.likelihoods._loss_as_likelihood import check_reductions
from keras_bdl.likelihoods._loss_as_likelihood import one_value_each
from keras_bdl.posteriors._covered_weights import check_built
from keras_bdl.prediction._stateless_call import ModelCache
from keras_bdl.prediction._stateless_call import check_model
from keras_bdl.prediction._stateless_call import traced

_OWNER = "this diagnostic"


def check_loss(model: keras.Model, loss: Loss | None) -> None:
    """Raises an error for a missing loss or a loss that is not a mean."""
    loss = getattr(model, "loss", None) if loss is None else loss
    check_reductions(_OWNER, loss)
    if loss is None:
        raise ValueError(
            "`loss` must be the negative log-likelihood if the model is not "
            "compiled with one. Received: loss=None"
        )


def compiled_loss(loss: Loss) -> Callable:
    """Returns the function that a model compiled with this loss calls."""
    # Keras has no public function for this, so an empty model compiles the
    # loss. The result handles names, functions, several outputs and targets
    # without a last axis.
    model = keras.Sequential()
    model.compile("sgd", loss)
    return _keras.compile_loss(model)


def mean_loss(
    compile_loss: Callable, y: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    """Returns the mean loss of a batch, from one value for each example."""
    with one_value_each(_OWNER, compile_loss):
        return compile_loss(y, y_pred, sample_weight)


def loss_reference(loss: Any) -> Any:
    """Returns a cache key for the loss, a weak reference if possible."""
    try:
        return weakref.ref(loss)
    except TypeError:  # strings, lists and dicts are compared by value
        return loss


_CACHE = ModelCache()


@dataclasses.dataclass
class BatchLoss:
    """The loss, penalty and outputs of a model on one batch."""

    loss: Any
    penalty: Any
    outputs: Any
    y: Any
    examples: Any


class TrainingLoss:
    """Base of classes that compile a step: a function of one batch's loss.

    A subclass defines `_step`, whose arguments are a batch and any other
    tensors that the subclass passes. TensorFlow traces `_step` once for all
    batches and calls.
    """

    def __init__(
        self, model: keras.Model, loss: Loss | None, training: bool
    ) -> None:
        self._model = weakref.ref(model)
        self._training = training
        # Keeps the loss alive, as a compiled model does.
        self._given = loss
        self._loss = None if loss is None else compiled_loss(loss)
        self._function = traced(model, self._step)

    @classmethod
    def of(cls, model: keras.Model, loss: Loss | None, training: bool) -> Any:
        """Returns the step of a model and loss, from a cache."""
        check_model(model)
        check_built(model)
        check_loss(model, loss)
        _check_weights(model)
        weights = tuple(id(v) for v in model.trainable_variables)
        key = (cls, training, weights, loss_reference(loss))
        return _CACHE.get(model, key, lambda: cls(model, loss, training))

    def __call__(self, batch: Any, *args: Any) -> Any:
        """Calls `_step` with the inputs of a `Batch` and with other tensors."""
        return self._function(batch.inputs, *args)

    def _step(self, batch: Any, *args: Any) -> None:
        raise NotImplementedError

    @property
    def model(self) -> Any:
        """The model; this object holds only a weak reference to the model."""
        return self._model()

    def forward(self, batch: dict[str, Any]) -> BatchLoss:
        """Returns the loss, the penalty and the outputs of a batch."""
        model = self.model
        batch = keras.tree.map_structure(ops.convert_to_tensor, batch)
        x, y = batch["x"], batch["y"]
        outputs = _keras.call_with_training(model, x, self._training)
        loss = mean_loss(
            self._loss or _keras.compile_loss(model),
            y,
            outputs,
            batch.get("weight"),
        )
        penalties = [ops.sum(ops.cast(one, "float32")) for one in model.losses]
        return BatchLoss(
            loss=ops.cast(loss, "float32"),
            penalty=sum(penalties, ops.zeros((), "float32")),
            outputs=outputs,
            y=y,
            examples=num_examples(batch),
        )


def num_examples(batch: dict[str, Any]) -> Any:
    """Returns the number of examples in a batch, a tensor of float32."""
    return ops.cast(ops.shape(keras.tree.flatten(batch["x"])[0])[0], "float32")


@contextlib.contextmanager
def left_as_it_was(model: keras.Model) -> Iterator[Callable]:
    """Restores all variables of a model at the end, and clears its losses."""
    with restored(model.variables) as restore:
        try:
            yield restore
        finally:
            # The losses are tensors of a trace. Drop them with the trace.
            _keras.clear_losses(model)


def _check_weights(model: keras.Model) -> None:
    layers = [layer.name for layer in sampling_layers(model)]
    if layers:
        raise ValueError(
            "`model` must have ordinary weights, but it has variational "
            f"layers. Received: layers {layers} of model={model.name!r}"
        )
    if not model.trainable_variables:
        raise ValueError(
            "`model` must have trainable weights. Set `trainable=True` on a "
            f"layer. Received: model={model.name!r} without any"
        )
