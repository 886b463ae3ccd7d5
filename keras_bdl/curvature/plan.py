"""Plan of a model: the rule of each layer and the owner of each weight."""

import dataclasses

import keras

from keras_bdl import _keras
from keras_bdl.curvature.rule import Rule
from keras_bdl.curvature.rule import own_variables
from keras_bdl.curvature.rule import rule_of
from keras_bdl.curvature.rules.whole_layer import WholeLayerRule


@dataclasses.dataclass
class Matrix:
    """The weights of a layer that multiplies its inputs by a matrix.

    Attributes:
        kernel: The kernel.
        bias: The bias if it is the last row of the matrix, or `None`.
        shape: `(in, out)`, where `in` includes the row of the bias.
    """

    kernel: keras.Variable
    bias: keras.Variable | None
    shape: tuple[int, int]

    @property
    def variables(self) -> list:
        """The kernel, and the bias if the matrix has a row for the bias."""
        return [v for v in (self.kernel, self.bias) if v is not None]


# The layers inside of these layers get no rules of their own: a recurrent
# layer, for example, calls its cell many times in a loop.
SEALED = (
    keras.layers.Bidirectional,
    keras.layers.RNN,
    keras.layers.StackedRNNCells,
    keras.layers.Wrapper,
)


class Plan:
    """A rule for each layer of a model that has trainable weights.

    Args:
        model: A built Keras model.
        fallback: Whether a layer that has no rule is differentiated separately
            for each example, with its inner layers. Defaults to `False`.
        variables: The variables to compute curvature for. Layers without such a
            variable need no rule. Defaults to `None`: all trainable variables.

    Attributes:
        variables: The variables, in the order of the model.
        rules: Pairs of layers and rules.
        owners: The layer of each variable, by `id` of the variable.
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        fallback: bool = False,
        variables: list | None = None,
    ):
        self.variables = model.trainable_variables
        if variables is not None:
            self.variables = list(variables)
        self.rules: list[tuple[keras.Layer, Rule]] = []
        self.owners: dict[int, keras.Layer] = {}
        self._fallback = fallback
        self._wanted = {id(v) for v in self.variables}
        inside: set[int] = set()
        for layer in _keras.all_layers(model):
            if id(layer) in inside:
                continue
            sealed = isinstance(layer, SEALED)
            own = layer.trainable_variables if sealed else own_variables(layer)
            if not any(map(self._trains, own)):
                continue
            rule = None if sealed else rule_of(layer)
            if rule is None:
                rule = self._whole_layer(layer, own)
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

    def matrix(self, layer: keras.Layer, rule: Rule) -> Matrix | None:
        """Returns the trainable `Matrix` of a layer, or `None`.

        Args:
            layer: A layer of `rules`.
            rule: The rule of the layer.
        """
        shape = rule.matrix_shape(layer)
        if shape is None or not self._trains(layer.kernel):
            return None
        bias = rule.bias_of_rows(layer)
        if bias is None or not self._trains(bias):
            return Matrix(layer.kernel, None, shape)
        return Matrix(layer.kernel, bias, (shape[0] + 1, shape[1]))

    def _trains(self, variable):
        return id(variable) in self._wanted

    def _own(self, variable, layer):
        owner = self.owners.setdefault(id(variable), layer)
        if owner is not layer:
            raise ValueError(
                "Per-example curvature needs every trainable variable to "
                f"belong to one layer alone. Received: {variable.path}, in "
                f"{owner.name!r} and in {layer.name!r}"
            )

    def _whole_layer(self, layer, own):
        if self._fallback:
            return WholeLayerRule()
        raise ValueError(
            "Per-example curvature has no rule for "
            f"`{type(layer).__name__}` with the weights "
            f"{', '.join(v.path for v in own)}. Register a rule with "
            "`keras_bdl.curvature.register_rule`, pass `fallback=True` to "
            "differentiate this layer example by example, or freeze the layer. "
            f"Received: layer={layer.name!r}"
        )


def matrices(model: keras.Model, *, fallback: bool = False) -> list[Matrix]:
    """Returns a `Matrix` for each `KroneckerFactors` that `step` returns.

    Args:
        model: A built Keras model.
        fallback: Whether layers without a rule are allowed. Defaults to
            `False`.
    """
    plan = Plan(model, fallback=fallback)
    found = [plan.matrix(layer, rule) for layer, rule in plan.rules]
    return [matrix for matrix in found if matrix is not None]
