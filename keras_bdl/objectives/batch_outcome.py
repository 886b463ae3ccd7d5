"""A batch, and the loss and outputs of a model at given weights."""

import dataclasses

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.curvature.weight_scope import WeightScope


@dataclasses.dataclass
class Outcome:
    """What came out of a forward pass.

    Attributes:
        loss: This replica's share of the whole loss, penalties included.
        nll: The mean negative log-likelihood of these examples.
        y_pred: The outputs of the model.
    """

    loss: object
    nll: object
    y_pred: object

    def plus(self, term):
        """Returns an outcome whose mean loss has one more term.

        Args:
            term: In nats for an example.
        """
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return Outcome(
            self.loss + term / replicas, self.nll + term, self.y_pred
        )


class Forward:
    """Runs a model on a batch, with tensors in the place of its weights.

    Args:
        model: A built, compiled `keras_bdl.Model`.
        x: The inputs.
        y: The targets.
        sample_weight: The weights of the examples.
        excluded: `id` of the variables without prior and noise.
        scale: What the loss is multiplied by for half precision, or `None`.
        state: Variables that layers and metrics assign, with tensors for
            their values: `new_state` takes the assignments. Defaults to
            `None`, where the variables themselves take them.

    Attributes:
        examples: How many examples there are.
        inferred: Positions of the weights that have a prior, in the order of
            `model.trainable_variables`.
        assigned: Variables that were assigned.
    """

    def __init__(self, model, x, y, sample_weight, excluded, scale, state=None):
        self.model = model
        self.data = x, y, sample_weight
        self.variables = model.trainable_variables
        self.scale = scale
        self.assigned = []
        self.inferred = [
            i for i, v in enumerate(self.variables) if id(v) not in excluded
        ]
        first = next(i for i in keras.tree.flatten(x) if i is not None)
        self.examples = first.shape[0] or ops.shape(first)[0]
        self._excluded = excluded
        self._state = state
        self.new_state = None

    @property
    def gradient_scale(self):
        """What `nll` is multiplied by before its gradient is taken, or `None`.

        The way back through this gradient is scaled by the rest of `scale`.
        """
        return None if self.scale is None else ops.sqrt(self.scale)

    def part(self, begin, size, state=None):
        """Returns the same for some of the examples.

        Args:
            begin: The first one.
            size: How many.
            state: See above. Defaults to `None`.
        """
        # Not a slice: XLA also compiles a loop that is never entered, and
        # refuses a slice that is longer than the batch.
        rows = begin + tf.range(size)

        def cut(array):
            return None if array is None else tf.gather(array, rows)

        data = keras.tree.map_structure(cut, self.data)
        return Forward(self.model, *data, self._excluded, self.scale, state)

    def __call__(self, values):
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
            y_pred = self.model._call_for(x, training=True)
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

    def outcome(self, loss, y_pred, penalties):
        """Returns the `Outcome` of a forward pass.

        Args:
            loss: This replica's share of the whole loss.
            y_pred: The outputs.
            penalties: Regularizers and other losses that are not of the data,
                of which replicas have shares in the loss.
        """
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        loss = ops.cast(loss, "float32")
        nll = loss * replicas
        if penalties:
            nll = nll - sum(ops.cast(one, "float32") for one in penalties)
        return Outcome(loss, nll, y_pred)

    def with_gradient(self, values):
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
        # Those of embeddings come as slices.
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        if scale is not None:
            gradients = [g / ops.cast(scale, g.dtype) for g in gradients]
        return outcome, gradients

    def _note(self, variable):
        if all(variable is not other for other in self.assigned):
            self.assigned.append(variable)


def by_groups(look, forward, size):
    """Averages over groups of a batch, as if each were a batch of its own.

    Where the groups do not come out even, the first one is smaller, and
    counts for less. BatchNorm normalises over a group.

    Args:
        look: Takes a `Forward` and returns an `Outcome` and gradients, a list
            of tensors.
        forward: The batch.
        size: Examples in a group.

    Returns:
        What `look` does.
    """
    examples = forward.examples
    rest = (examples - 1) // size  # whole groups after the first one
    if not isinstance(rest, int):
        rest = tf.maximum(rest, 0)  # also of a replica without examples
    begin = examples - rest * size
    first = forward.part(0, begin)
    outcome, gradients = look(first)
    if isinstance(rest, int) and rest == 0:
        return outcome, gradients

    def weight(part):
        # A replica without examples has a group of none, of no weight.
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
    # Replicas cannot assign from inside of a loop: it carries the values.
    state = first.assigned
    values = [tf.convert_to_tensor(v.value) for v in state]
    share = weight(size)

    def body(i, sums, arrays, values):
        pairs = list(zip(state, values, strict=True))
        part = forward.part(begin + i * size, size, pairs)
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
