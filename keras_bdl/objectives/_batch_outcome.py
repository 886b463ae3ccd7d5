"""Loss and outputs of a model for one batch at given weights."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._data._observations import EXAMPLES
from keras_bdl._data._observations import count_positions
from keras_bdl.curvature._captured_pass import Losses
from keras_bdl.curvature._weight_scope import WeightScope
from keras_bdl.distribute._replicas import first_tensor


@dataclasses.dataclass
class Outcome:
    """Loss and outputs of one forward pass.

    Attributes:
        loss: The loss of this replica with penalties, already divided by the
            number of replicas.
        nll: The mean negative log-likelihood of the examples of this replica.
        y_pred: The outputs of the model.
    """

    loss: Any
    nll: Any
    y_pred: Any

    def plus(self, term: Any) -> "Outcome":
        """Returns an outcome whose mean loss has one more term.

        Args:
            term: The term, in nats per example.
        """
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return Outcome(
            self.loss + term / replicas, self.nll + term, self.y_pred
        )


class BatchPass:
    """Runs a model on one batch with given tensors for weights.

    Args:
        model: A built, compiled `keras_bdl.Model`.
        data: Inputs, targets and weights of the examples.
        excluded: The `id` of each variable without prior and noise.
        scale: Factor of the loss for half precision, or `None`.
        state: Pairs of a variable and a tensor for its value, for all variables
            that layers or metrics assign. Assignments then change `new_state`.
            Defaults to `None`: assignments change the variables.

    Attributes:
        examples: Number of examples.
        inferred: Positions of the weights that have a prior, in the order of
            `model.trainable_variables`.
        assigned: The variables that forward passes have assigned.
        noises: The noise of each sample, which `SampledVI` sets.
        new_state: The values of the variables of `state` after the forward
            pass, or `None`.
    """

    def __init__(
        self,
        model: keras.Model,
        data: tuple,
        *,
        excluded: set[int],
        scale: Any,
        state: list | None = None,
    ):
        self.model = model
        self.data = data
        x = data[0]
        self.variables = model.trainable_variables
        self.scale = scale
        self.assigned: list[keras.Variable] = []
        self.noises: list = []
        self.inferred = [
            i for i, v in enumerate(self.variables) if id(v) not in excluded
        ]
        first = first_tensor(x)
        self.examples = first.shape[0] or ops.shape(first)[0]
        self._excluded = excluded
        self._state = state
        self.new_state: list | None = None

    def observations(self, y_pred: Any) -> Any:
        """Returns the number of observations, see `keras_bdl.Model.compile`.

        Args:
            y_pred: The outputs of the model.
        """
        losses = Losses(self.model)
        labels = losses.labels(y_pred)
        if self.model.observations == EXAMPLES:
            return labels * self.examples
        counted = losses.counted(self.data[1])
        return labels * count_positions(y_pred, counted)

    @property
    def gradient_scale(self) -> Any:
        """Factor of `nll` before its gradient is computed, or `None`.

        The factor is `sqrt(scale)`. When this gradient is differentiated
        again, the remaining `sqrt(scale)` scales that second derivative.
        """
        return None if self.scale is None else ops.sqrt(self.scale)

    def part(
        self, begin: Any, size: Any, *, state: list | None = None
    ) -> "BatchPass":
        """Returns a `BatchPass` of some of the examples.

        Args:
            begin: Index of the first example.
            size: Number of examples.
            state: As in `BatchPass`. Defaults to `None`.
        """
        # `gather` instead of a slice: XLA also compiles a loop that never
        # runs, and rejects a slice longer than the batch.
        rows = begin + tf.range(size)

        def cut(array):
            return None if array is None else tf.gather(array, rows)

        data = keras.tree.map_structure(cut, self.data)
        return BatchPass(
            self.model,
            data,
            excluded=self._excluded,
            scale=self.scale,
            state=state,
        )

    def __call__(self, values: list) -> Outcome:
        """Returns the `Outcome` of one forward pass.

        Args:
            values: Tensors for the trainable variables of the model.
        """
        x, y, sample_weight = self.data
        scope = WeightScope(
            self.variables, values, pure=self._state is not None
        )
        for update in self._state or ():
            scope.add_update(update)
        scope.on_assign = self._note
        with scope:
            y_pred = _keras.call_with_training(self.model, x, training=True)
            loss = _keras.compute_loss(
                self.model, x, y, y_pred, sample_weight, training=True
            )
            penalties = [ops.sum(one) for one in self.model.losses]
        if self._state is not None:
            self.new_state = [
                tf.convert_to_tensor(scope.get_current_value(v))
                for v, _ in self._state
            ]
        return self.outcome(loss, y_pred, penalties)

    def outcome(self, loss: Any, y_pred: Any, penalties: list) -> Outcome:
        """Returns the `Outcome` of a forward pass.

        Args:
            loss: The loss that Keras computed on this replica, already divided
                by the number of replicas.
            y_pred: The outputs.
            penalties: Regularizers and other losses without data, not divided
                by the number of replicas.
        """
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        loss = ops.cast(loss, "float32")
        nll = loss * replicas
        if penalties:
            nll = nll - sum(ops.cast(one, "float32") for one in penalties)
        return Outcome(loss, nll, y_pred)

    def with_gradient(self, values: list) -> tuple[Outcome, list]:
        """Returns the outcome and the gradient of its `nll`.

        Args:
            values: Tensors for the trainable variables of the model.
        """
        scale = self.gradient_scale
        with tf.GradientTape() as tape:
            tape.watch(values)
            outcome = self(values)
            nll = outcome.nll if scale is None else outcome.nll * scale
        gradients = tape.gradient(nll, values, unconnected_gradients="zero")
        # Gradients of embeddings come as slices.
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        if scale is not None:
            gradients = [g / ops.cast(scale, g.dtype) for g in gradients]
        return outcome, gradients

    def _note(self, variable):
        if all(variable is not other for other in self.assigned):
            self.assigned.append(variable)


def by_groups(
    look: Callable[[BatchPass], tuple[Outcome, list]],
    forward: BatchPass,
    size: int,
) -> tuple[Outcome, list]:
    """Averages a function of batches over groups of one batch.

    If `size` does not divide the number of examples, the first group is
    smaller and counts less. BatchNorm normalises over a group.

    Args:
        look: Takes a `BatchPass` and returns an `Outcome` and a list of
            gradients.
        forward: The batch.
        size: Number of examples in a group.

    Returns:
        The averaged outcome and gradients, with the outputs of all examples.
    """
    examples = forward.examples
    rest = (examples - 1) // size  # whole groups after the first one
    if not isinstance(rest, int):
        rest = tf.maximum(rest, 0)  # a replica may have no examples
    begin = examples - rest * size
    first = forward.part(0, begin)
    outcome, gradients = look(first)
    if isinstance(rest, int) and rest == 0:
        return outcome, gradients

    def weight(part):
        # A replica without examples has an empty group with weight 0.
        return tf.math.divide_no_nan(
            tf.cast(part, "float32"), tf.cast(examples, "float32")
        )

    def scaled(outcome, gradients, by):
        numbers = [outcome.loss, outcome.nll, *gradients]
        return [n * tf.cast(by, n.dtype) for n in numbers]

    outputs = keras.tree.flatten(outcome.y_pred)
    arrays = [
        tf.TensorArray(y.dtype, rest, element_shape=(size, *y.shape[1:]))
        for y in outputs
    ]
    # Replicas cannot assign inside of a loop: the loop carries the values.
    state = first.assigned
    values = [tf.convert_to_tensor(v.value) for v in state]
    share = weight(size)

    def body(i, sums, arrays, values):
        pairs = list(zip(state, values, strict=True))
        part = forward.part(begin + i * size, size, state=pairs)
        found, gradients = look(part)
        added = scaled(found, gradients, share)
        y_pred = keras.tree.flatten(found.y_pred)
        return (
            i + 1,
            [a + b for a, b in zip(sums, added, strict=True)],
            [a.write(i, y) for a, y in zip(arrays, y_pred, strict=True)],
            part.new_state,
        )

    _, sums, arrays, values = tf.while_loop(
        lambda i, *_: i < rest,
        body,
        (
            tf.constant(0),
            scaled(outcome, gradients, weight(begin)),
            arrays,
            values,
        ),
        parallel_iterations=1,
    )
    for variable, value in zip(state, values, strict=True):
        variable.assign(value)
    outputs = [
        tf.concat([y, a.concat()], 0)
        for y, a in zip(outputs, arrays, strict=True)
    ]
    loss, nll, *gradients = sums
    y_pred = keras.tree.pack_sequence_as(outcome.y_pred, outputs)
    return Outcome(loss, nll, y_pred), gradients
