"""A forward pass with given weights, which records the calls of layers."""

import contextlib
import dataclasses
import functools
import inspect
import math
import warnings
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._arguments import check_choice
from keras_bdl._backend import after
from keras_bdl._replaced_in_thread import replaced
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._rule import own_variables
from keras_bdl.curvature._rule import rule_of
from keras_bdl.curvature._rule import trained_variables
from keras_bdl.curvature._rules._whole_layer import WholeLayerRule

# The layers inside of these layers get no rules of their own: a recurrent
# layer, for example, calls its cell many times in a loop.
SEALED = (
    keras.layers.Bidirectional,
    keras.layers.RNN,
    keras.layers.StackedRNNCells,
    keras.layers.Wrapper,
)

# With `fallback="auto"`, a layer with more weights needs a rule: the gradients
# of all examples are in memory at once.
SMALL = 2**20

# The layers that a warning has named.
_TOLD: weakref.WeakSet = weakref.WeakSet()


class Plan:
    """A rule for each layer of a model that has trainable weights.

    `fallback=True` differentiates layers without a rule separately for each
    example, with their inner layers. `"auto"` does so if a layer has at most
    `SMALL` weights of its own; if it has more with those of its inner layers,
    these need rules of their own. `False` raises an error. Layers without one
    of `variables`, by default all trainable ones, need no rule. A kernel with a
    side longer than `max_factor_size` gets no Kronecker factors.

    Attributes:
        variables: The variables, in the order of the model.
        rules: Pairs of layers and rules.
        owners: The layer of each variable, by `id` of the variable.
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        fallback: bool | str = "auto",
        variables: list | None = None,
        max_factor_size: int | None = None,
    ):
        self.max_factor_size = max_factor_size
        self.variables = model.trainable_variables
        if variables is not None:
            self.variables = list(variables)
        self.rules: list[tuple[keras.Layer, Rule]] = []
        self.owners: dict[int, keras.Layer] = {}
        self._fallback = check_fallback(fallback)
        self._without_rule: list[keras.Layer] = []
        self._wanted = {id(v) for v in self.variables}
        inside: set[int] = set()
        for layer in _keras.all_layers(model):
            if id(layer) in inside:
                continue
            sealed = isinstance(layer, SEALED)
            own = trained_variables(layer) if sealed else own_variables(layer)
            if not any(map(self._trains, own)):
                continue
            _check_supported(layer, model)
            rule = None if sealed else rule_of(layer)
            if rule is None:
                rule = self._whole_layer(layer, own)
                if rule.inner:
                    inner = _keras.inner_layers(layer)
                    inside.update(id(part) for part in inner)
            self.rules.append((layer, rule))
            for variable in rule.weights(layer):
                self._own(variable, layer)
        lost = [v.path for v in self.variables if id(v) not in self.owners]
        if lost:
            raise ValueError(
                "Per-example curvature needs every trainable variable to "
                "belong to a layer of the model. Create variables in layers. "
                f"Received: {', '.join(lost)}, which belong to no layer"
            )
        self._warn_of_layers_without_rule()

    def matrices(self, layer: keras.Layer, rule: Rule) -> list[WeightMatrix]:
        """Returns the matrices of a layer with the variables of the plan."""
        found = [m for m in rule.matrices(layer) if self._trains(m.kernel)]
        for matrix in found:
            if matrix.bias is not None and not self._trains(matrix.bias):
                matrix.bias = None
        limit = self.max_factor_size or math.inf
        return [m for m in found if max(m.kernel_shape) <= limit]

    def _trains(self, variable: Any) -> bool:
        return id(variable) in self._wanted

    def _own(self, variable: Any, layer: keras.Layer) -> None:
        owner = self.owners.setdefault(id(variable), layer)
        if owner is not layer:
            raise ValueError(
                "Per-example curvature needs every trainable variable to "
                f"belong to one layer alone. Received: {variable.path}, in "
                f"{owner.name!r} and in {layer.name!r}"
            )

    def _whole_layer(self, layer: keras.Layer, own: list) -> WholeLayerRule:
        sealed = isinstance(layer, SEALED)
        if self._fallback is True:
            return WholeLayerRule(inner=True, any_rows=True)
        if self._fallback == "auto" and _size(own) <= SMALL:
            self._without_rule.append(layer)
            # Inner layers of a small block need no rules either: some get
            # inputs that all examples share, such as positions.
            whole = _size(trained_variables(layer)) <= SMALL
            return WholeLayerRule(inner=sealed or whole, any_rows=False)
        raise ValueError(
            "Per-example curvature has no rule for "
            f"`{type(layer).__name__}` with the weights "
            f"{', '.join(v.path for v in own)}. Register a rule with "
            "`keras_bdl.extend.register_rule`, pass `fallback=True` to "
            "differentiate this layer example by example, or freeze the layer. "
            f"Received: layer={layer.name!r} with {_size(own):,} weights, and "
            f"fallback={self._fallback!r}"
        )

    def _warn_of_layers_without_rule(self) -> None:
        new = [layer for layer in self._without_rule if layer not in _TOLD]
        _TOLD.update(new)
        if new:
            names = {f"`{type(layer).__name__}`" for layer in new}
            warnings.warn(
                "Per-example curvature has no rule for "
                f"{', '.join(sorted(names))}, and differentiates these small "
                "layers example by example. The result is the same. If "
                "training is too slow, freeze them, or register a rule with "
                "`keras_bdl.extend.register_rule`",
                stacklevel=2,
            )


def _check_supported(layer: keras.Layer, model: keras.Model) -> None:
    if getattr(layer, "quantization_mode", None) is not None:
        raise ValueError(
            "Per-example curvature needs layers that are not quantised. Freeze "
            "the layer, or train with `keras_bdl.IVON` or a sampler. Received: "
            f"layer={layer.name!r}, "
            f"quantization_mode={layer.quantization_mode!r}"
        )
    recurrent = isinstance(
        layer, (keras.layers.RNN, keras.layers.Bidirectional)
    )
    if recurrent and getattr(model, "jit_compile", False) is True:
        raise ValueError(
            "Per-example curvature of a recurrent layer cannot be compiled by "
            "XLA. Pass `jit_compile=False` to `compile`. "
            f"Received: layer={layer.name!r}, jit_compile=True"
        )


def check_fallback(fallback: bool | str) -> bool | str:
    """Returns the argument `fallback`, or raises an error."""
    return check_choice("fallback", fallback, (True, False, "auto"))


def _size(variables: list) -> int:
    return sum(math.prod(v.shape) for v in variables)


class WeightScope(keras.StatelessScope):
    """Replaces the values of variables, and calls `on_read` for each read.

    Keras uses `values` in the scope, and the variables do not change.
    Assignments to other variables, such as BatchNorm statistics, seeds and
    metrics, take effect unless `pure` drops them at the end of the scope.
    """

    def __init__(self, variables: list, values: list, *, pure: bool = False):
        super().__init__(
            zip(variables, values, strict=True),
            collect_losses=True,
            # The first step creates variables, such as trackers of losses.
            initialize_variables=True,
        )
        self._variables = {id(v): v for v in variables}
        self._values = {i: self.state_mapping[i] for i in self._variables}
        self._pure = pure
        self.on_read: Callable | None = None
        self.on_assign: Callable | None = None

    def value_of(self, variable: Any) -> Any:
        """Returns the value that replaces the value of a variable."""
        return self._values[id(variable)]

    def get_current_value(self, variable: Any) -> Any:
        """Returns the value that Keras uses for a variable."""
        if self.on_read is not None and id(variable) in self._variables:
            return self.on_read(variable)
        return super().get_current_value(variable)

    def add_update(self, update: tuple[Any, Any]) -> Any:
        """Assigns a variable, or records the assignment if `pure` is `True`."""
        variable, value = update
        if id(variable) in self._variables:
            raise ValueError(
                "A layer must not assign a trainable variable in a training "
                "step with per-example gradients. Make the variable "
                f"non-trainable. Received: {variable.path}"
            )
        if self.on_assign is not None:
            self.on_assign(variable)
        if self._pure:
            return super().add_update(update)
        # Leave the scope for the assignment, so that the variable changes.
        self.__exit__(None, None, None)
        try:
            variable.assign(value)
        finally:
            self.__enter__()


def current_values(variables: list) -> list:
    """Returns the values of Keras variables as tensors."""
    return [tf.convert_to_tensor(v.value) for v in variables]


@dataclasses.dataclass
class Call:
    """One call of a layer.

    `inputs` is the first result of `rule.run`, and `outputs` is z, the tensor
    that the loss is differentiated with respect to.
    """

    layer: Any
    rule: Rule
    inputs: Any = None
    outputs: Any = None


class Capture:
    """Records the calls of the layers of a plan.

    Create a `Capture` inside of a gradient tape. In `recording()`, run the
    model in `forward()` and compute the loss. Then differentiate the loss with
    respect to `outputs` and pass the gradients to `calls_by_layer`. The value
    of a weight depends on the code that reads the weight:

    - The layer that owns the weight reads the given value in its call. The
      rules read the given value, too.
    - The loss, for example a regularizer, reads a copy of the given value. The
      attribute `read_in_loss` holds the copies, and the tape differentiates the
      loss with respect to them separately.
    - Other code in the forward pass raises an error, because no record of a
      call would contain this use of the weight.

    The tape must watch accessed variables. `values` has a tensor for each of
    `plan.variables`. `examples` is the size of the batch, an integer or a
    tensor. `pure` drops assignments to variables outside of the plan.
    """

    def __init__(
        self,
        plan: Plan,
        values: list,
        tape: tf.GradientTape,
        *,
        examples: Any,
        pure: bool = False,
    ):
        self.plan = plan
        self.examples = examples
        self.calls: list[Call] = []
        self.read_in_loss: dict[int, Any] = {}
        self._tape = tape
        self._scope = WeightScope(plan.variables, values, pure=pure)
        self._open: list[Call] = []
        self._places = [_places_of(v) for v in plan.variables]
        tape.watch([self.value_of(v) for v in plan.variables])

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Gives the weights the values of `values` inside the block.

        In `forward()`, reading a weight returns its value. Outside of
        `forward()`, the loss reads a copy of the value.
        """
        self._scope.on_read = self._read_in_loss
        with self._scope:
            yield

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Records the calls of layers."""
        self._scope.on_read = self._read_in_layer
        self._scope.on_assign = self._assigned_in_layer
        with contextlib.ExitStack() as stack:
            # In this thread alone: other replicas call the layers as before.
            for layer, rule in self.plan.rules:
                run = functools.partial(self._run_layer, layer, rule)
                stack.enter_context(replaced(layer, "call", run))
                if getattr(layer, "activation", None) is not None:
                    run = functools.partial(self._run_activation, layer)
                    stack.enter_context(replaced(layer, "activation", run))
            yield
        self._scope.on_read = self._read_in_loss
        self._scope.on_assign = None
        self._check_complete()

    @contextlib.contextmanager
    def computing_rules(self) -> Iterator[None]:
        """Gives the weights the values of `values` again, for the rules.

        Inside the block, reading a weight returns its value, as in the
        forward pass. The rules run after `recording()` has ended.
        """
        self._scope.on_read = self.value_of
        with self._scope:
            yield

    @property
    def outputs(self) -> list:
        """The outputs z of all calls; dL/dz are the cotangents."""
        return [call.outputs for call in self.calls]

    def value_of(self, variable: Any) -> Any:
        """Returns the given value of a variable."""
        return self._scope.value_of(variable)

    def calls_by_layer(
        self, cotangents: list, factor: Any = None
    ) -> list[tuple[keras.Layer, Rule, list]]:
        """Returns each layer, its rule, and pairs of inputs and cotangents.

        `cotangents` are the gradients with respect to `outputs`, `None` for
        outputs that the loss does not depend on. `factor` multiplies them. The
        pairs are empty if the loss does not depend on the layer.
        """
        grouped: dict[int, tuple] = {}
        for call, dz in zip(self.calls, cotangents, strict=True):
            _, _, pairs = grouped.setdefault(
                id(call.layer), (call.layer, call.rule, [])
            )
            if dz is None:
                continue
            inputs = after([dz], call.inputs)
            dz = in_full_precision(tf.convert_to_tensor(dz))
            dz = _example_by_example(call, dz, self.examples)
            if factor is not None:
                dz = dz * ops.cast(factor, dz.dtype)
            pairs.append((inputs, dz))
        return list(grouped.values())

    def _run_layer(
        self,
        layer: keras.Layer,
        rule: Rule,
        call: Callable,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Runs a layer and records the call."""
        if not args:
            name = next(iter(inspect.signature(call).parameters))
            args = (kwargs.pop(name),)
        record = Call(layer, rule)
        self._open.append(record)
        try:
            record.inputs, outputs = rule.run(layer, call, *args, **kwargs)
        finally:
            self._open.pop()
        if record.outputs is None:
            outputs = self._tap(record, outputs)
        self.calls.append(record)
        return outputs

    def _run_activation(
        self, layer: keras.Layer, activation: Callable, z: Any
    ) -> Any:
        """Records the pre-activation of a layer."""
        record = self._open[-1] if self._open else None
        if (
            record is None
            or record.layer is not layer
            or record.rule.taps == "output"
        ):
            return activation(z)
        if record.outputs is not None:
            raise ValueError(
                "Per-example curvature needs a layer to call its activation "
                "at most once. Split the layer in two. "
                f"Received: layer={layer.name!r}"
            )
        return activation(self._tap(record, z))

    def _tap(self, record: Call, z: Any) -> Any:
        self._tape.watch(z)
        record.outputs = z
        return z

    def _read_in_layer(self, variable: Any) -> Any:
        owner = self.plan.owners[id(variable)]
        if not any(call.layer is owner for call in self._open):
            raise ValueError(_misused(variable, "by another part of the model"))
        return self.value_of(variable)

    def _read_in_loss(self, variable: Any) -> Any:
        if id(variable) not in self.read_in_loss:
            copy = tf.identity(self.value_of(variable))
            self.read_in_loss[id(variable)] = copy
        return self.read_in_loss[id(variable)]

    def _assigned_in_layer(self, variable: Any) -> None:
        for call in self._open:
            if call.rule.calls_again:
                raise ValueError(
                    "A layer without a rule of its own runs again for each "
                    "example, and must not draw random numbers or keep "
                    "statistics. Freeze the layer, or register a rule. In a "
                    "prediction, leave `link` out. "
                    f"Received: layer={call.layer.name!r}, which assigns "
                    f"{variable.path}"
                )

    def _check_complete(self) -> None:
        accessed = {id(v) for v in self._tape.watched_variables()}
        for variable, places in zip(
            self.plan.variables, self._places, strict=True
        ):
            if any(id(place) in accessed for place in places):
                raise ValueError(
                    _misused(
                        variable, "outside of Keras, or in a `tf.function`"
                    )
                )
        called = {id(call.layer) for call in self.calls}
        owners = self.plan.owners
        idle = [
            v for v in self.plan.variables if id(owners[id(v)]) not in called
        ]
        if idle:
            raise ValueError(
                "Per-example curvature needs every layer with weights to be "
                "called in the step. Freeze the layers that are not called. "
                f"Received: {', '.join(v.path for v in idle)}, whose layers "
                "were not called, or only in a `tf.function` traced earlier"
            )
        graph = tf.compat.v1.get_default_graph()
        for call in self.calls if tf.inside_function() else []:
            if call.outputs.graph is not graph:
                raise ValueError(
                    "Per-example curvature cannot record calls in a loop, a "
                    "condition or a `tf.function` inside of a model. Pass "
                    "`fallback=True` if one layer contains the loop. "
                    f"Received: layer={call.layer.name!r}, called in one"
                )


def _places_of(variable: Any) -> list:
    """Returns the TensorFlow variables that hold a Keras variable."""
    strategy = tf.distribute.get_strategy()
    place = variable.value
    return [place, *strategy.experimental_local_results(place)]


def _example_by_example(call: Call, dz: Any, examples: Any) -> Any:
    """Returns cotangents; raises unless the layer gets one row per example."""
    message = (
        "Per-example curvature needs every layer with weights to be called on "
        "tensors whose first axis is the examples of the batch. Repeat inputs "
        "that all examples share, such as positions, for each example. "
        f"Received: layer={call.layer.name!r}, called on another first axis"
    )
    rows = ops.shape(call.outputs)[0]
    if isinstance(rows, int) and not isinstance(examples, int):
        # The batch size is unknown here. Equal numbers would be a coincidence.
        raise ValueError(message)
    # Raises at once if the sizes are known.
    check = tf.debugging.assert_equal(rows, examples, message)
    if check is not None:
        with tf.control_dependencies([check]):
            # TensorFlow merges the reshape below with the next reshape and
            # drops the control dependency. `identity` keeps the dependency.
            dz = tf.identity(dz)
        # Compiled functions drop assertions; `reshape` fails instead.
        dz = tf.reshape(dz, [examples, *ops.shape(call.outputs)[1:]])
    # A gradient in a branch of a condition may have lost its shape.
    dz.set_shape(call.outputs.shape)
    return dz


def _misused(variable: Any, where: str) -> str:
    return (
        "Per-example curvature needs a weight to be used only by the layer "
        "that owns it: otherwise its gradient would be wrong. Call the layer "
        f"instead of reading its weight. Received: {variable.path}, used "
        f"{where}"
    )
