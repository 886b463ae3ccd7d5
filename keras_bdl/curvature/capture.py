"""What went into and came out of the layers of a model in one step."""

import contextlib
import dataclasses

import tensorflow as tf
from keras import ops

from keras_bdl.curvature.hooks import hooked
from keras_bdl.curvature.reductions import after
from keras_bdl.curvature.reductions import in_full_precision
from keras_bdl.curvature.rule import Rule
from keras_bdl.curvature.weight_scope import WeightScope


@dataclasses.dataclass
class Call:
    """One call of a layer.

    Attributes:
        layer: The layer.
        rule: Its rule.
        inputs: What the rule keeps of the inputs.
        outputs: z, a source of the gradient.
    """

    layer: object
    rule: Rule
    inputs: object = None
    outputs: object = None


class Capture:
    """Records the calls of the layers of a plan.

    Made inside of a gradient tape. Run the model in `forward()` and take the
    loss, both in `recording()`; later, ask for `calls_by_layer` of the
    gradients by `outputs`. Weights have the given values throughout:

    - in the call of the layer that owns them, and in the rules;
    - in the loss, such as in regularizers, as copies that the tape tells from
      these, `read_in_loss`;
    - elsewhere in the forward pass nobody may read them, since the calls
      would not tell.

    Args:
        plan: A `Plan`.
        values: A tensor for each of `plan.variables`.
        tape: A `tf.GradientTape` that watches accessed variables.
        pure: Whether assignments to other variables are forgotten. Defaults
            to `False`.
    """

    def __init__(self, plan, values, tape, pure=False):
        self.plan = plan
        self.calls = []
        self.read_in_loss = {}
        self._tape = tape
        self._scope = WeightScope(plan.variables, values, pure)
        self._rules = {id(layer): rule for layer, rule in plan.rules}
        self._open = []
        self._places = [_places_of(v) for v in plan.variables]
        tape.watch([self.value_of(v) for v in plan.variables])

    @contextlib.contextmanager
    def recording(self):
        """Puts the values into the model."""
        self._scope.on_read = self._read_in_loss
        with self._scope:
            yield

    @contextlib.contextmanager
    def forward(self):
        """Records the calls of layers."""
        layers = [layer for layer, _ in self.plan.rules]
        self._scope.on_read = self._read_in_layer
        self._scope.on_assign = self._assigned_in_layer
        with hooked(layers, self):
            yield
        self._scope.on_read = self._read_in_loss
        self._scope.on_assign = None
        self._check_complete()

    @contextlib.contextmanager
    def computing_rules(self):
        """Lets rules read the values."""
        self._scope.on_read = self.value_of
        with self._scope:
            yield

    @property
    def outputs(self):
        """The sources of the gradient."""
        return [call.outputs for call in self.calls]

    def value_of(self, variable):
        """Returns the value of a variable."""
        return self._scope.value_of(variable)

    def calls_by_layer(self, cotangents, examples, factor=None):
        """Groups what the rules need.

        Args:
            cotangents: Gradients by `outputs`; `None` where there is none.
            examples: Size of the batch, an integer or a tensor.
            factor: Multiplies them all. Defaults to `None`, which is one.

        Returns:
            Triples of a layer, its rule, and pairs of inputs and cotangents;
            no pairs, where the loss does not depend on the layer.
        """
        grouped = {}
        for call, dz in zip(self.calls, cotangents, strict=True):
            _, _, pairs = grouped.setdefault(
                id(call.layer), (call.layer, call.rule, [])
            )
            if dz is None:
                continue
            inputs = after([dz], call.inputs)
            dz = in_full_precision(tf.convert_to_tensor(dz))
            dz = _example_by_example(call, dz, examples)
            if factor is not None:
                dz = dz * ops.cast(factor, dz.dtype)
            pairs.append((inputs, dz))
        return list(grouped.values())

    def run_layer(self, layer, call, inputs, *args, **kwargs):
        """Runs a layer and records it."""
        rule = self._rules.get(id(layer))
        if rule is None:  # hooked by another capture, of another model
            return call(inputs, *args, **kwargs)
        record = Call(layer, rule)
        self._open.append(record)
        try:
            record.inputs, outputs = rule.run(
                layer, call, inputs, *args, **kwargs
            )
        finally:
            self._open.pop()
        if record.outputs is None:
            outputs = self._tap(record, outputs)
        self.calls.append(record)
        return outputs

    def run_activation(self, layer, z):
        """Records what a layer gives to its activation."""
        record = self._open[-1] if self._open else None
        if record is None or record.layer is not layer:
            return z
        if record.rule.taps == "output":
            return z
        if record.outputs is not None:
            raise ValueError(
                "A layer whose pre-activation is captured must use its "
                "activation once in a call. "
                f"Received: layer={layer.name!r}"
            )
        return self._tap(record, z)

    def _tap(self, record, z):
        self._tape.watch(z)
        record.outputs = z
        return z

    def _read_in_layer(self, variable):
        owner = self.plan.owners[id(variable)]
        if not any(call.layer is owner for call in self._open):
            raise ValueError(_misused(variable, "by other parts of the model"))
        return self.value_of(variable)

    def _read_in_loss(self, variable):
        if id(variable) not in self.read_in_loss:
            copy = tf.identity(self.value_of(variable))
            self.read_in_loss[id(variable)] = copy
        return self.read_in_loss[id(variable)]

    def _assigned_in_layer(self, variable):
        for call in self._open:
            if call.rule.calls_again:
                raise ValueError(
                    "A layer without a rule of its own is called again for "
                    "each example, and must not draw random numbers or keep "
                    f"statistics. Received: layer={call.layer.name!r}, which "
                    f"assigns {variable.path}"
                )

    def _check_complete(self):
        accessed = {id(v) for v in self._tape.watched_variables()}
        for variable, places in zip(
            self.plan.variables, self._places, strict=True
        ):
            if any(id(place) in accessed for place in places):
                raise ValueError(
                    _misused(variable, "past Keras, or in a `tf.function`")
                )
        called = {id(call.layer) for call in self.calls}
        idle = [v for v, o in self._owned() if id(o) not in called]
        if idle:
            raise ValueError(
                "Per-example curvature needs every layer with weights to be "
                "called in the step. Freeze those that are not. "
                f"Received: {', '.join(v.path for v in idle)}, whose layers "
                "were not called, or only in a `tf.function` traced before"
            )
        graph = tf.compat.v1.get_default_graph()
        for call in self.calls if tf.inside_function() else []:
            if call.outputs.graph is not graph:
                raise ValueError(
                    "Per-example curvature cannot look into a loop, a "
                    "condition or a `tf.function` inside of a model. Pass "
                    "`fallback=True` if it is inside of one layer. "
                    f"Received: layer={call.layer.name!r}, called in one"
                )

    def _owned(self):
        for variable in self.plan.variables:
            yield variable, self.plan.owners[id(variable)]


def _places_of(variable):
    """Returns the TensorFlow variables that hold a Keras variable."""
    strategy = tf.distribute.get_strategy()
    place = variable.value
    return [place, *strategy.experimental_local_results(place)]


def _example_by_example(call, dz, examples):
    """Refuses a layer that is called on anything but one row an example."""
    message = (
        "Per-example curvature needs every layer with weights to be called on "
        "tensors whose first axis are the examples of the batch; repeat for "
        "each example what is the same for all, such as positions. "
        f"Received: layer={call.layer.name!r}, called on others"
    )
    rows = ops.shape(call.outputs)[0]
    if isinstance(rows, int) and not isinstance(examples, int):
        # A batch may have as many examples by chance.
        raise ValueError(message)
    # Raises at once where the sizes are known.
    check = tf.debugging.assert_equal(rows, examples, message)
    if check is not None:
        with tf.control_dependencies([check]):
            # Compiled functions have no assertions, but fail here.
            shape = [examples, *ops.shape(call.outputs)[1:]]
            dz = tf.reshape(dz, shape)
    # A gradient in the branch of a condition may have lost it.
    dz.set_shape(call.outputs.shape)
    return dz


def _misused(variable, where):
    return (
        "Per-example curvature needs a weight to be used by the layer that "
        "owns it, and by nothing else, in the forward pass: its gradient would "
        f"be wrong. Received: {variable.path}, used {where}"
    )
