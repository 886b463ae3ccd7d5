"""Which layers are responsible for which weights, and which are matrices."""

import dataclasses

import keras

from keras_bdl import _keras
from keras_bdl.curvature.rule import own_variables
from keras_bdl.curvature.rule import rule_of
from keras_bdl.curvature.rules.whole_layer import WholeLayerRule


@dataclasses.dataclass
class Matrix:
    """The weights of a layer that multiplies a matrix to its inputs.

    Attributes:
        kernel: The variable.
        bias: The variable that is a further row, the last, or `None`.
        shape: `(in, out)`, where `in` counts that row.
    """

    kernel: keras.Variable
    bias: keras.Variable | None
    shape: tuple

    @property
    def variables(self):
        """The kernel and, if it is a row of the matrix, the bias."""
        return [v for v in (self.kernel, self.bias) if v is not None]


# These use the layers inside in ways of their own, such as many times in a
# loop, and not by calling them as they are.
_SEALED = (
    keras.layers.Bidirectional,
    keras.layers.RNN,
    keras.layers.StackedRNNCells,
    keras.layers.Wrapper,
)


class Plan:
    """The rule of each layer of a model that has weights to train.

    Args:
        model: A built Keras model.
        fallback: Whether a layer without a rule is differentiated example by
            example, as a whole, together with the layers inside. Defaults to
            `False`.
        variables: Those whose curvature is wanted; layers with others only
            need no rule. Defaults to `None`, all that train.

    Attributes:
        variables: The variables, in the order of the model.
        rules: Pairs of layers and rules.
        owners: By `id` of a variable, the layer.
    """

    def __init__(self, model, fallback: bool = False, variables=None):
        self.variables = model.trainable_variables
        if variables is not None:
            self.variables = list(variables)
        self.rules = []
        self.owners = {}
        self._fallback = fallback
        self._wanted = {id(v) for v in self.variables}
        inside = set()
        for layer in _keras.all_layers(model):
            if id(layer) in inside:
                continue
            sealed = isinstance(layer, _SEALED)
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
                "belong to a layer of the model. "
                f"Received: {', '.join(lost)}, which belong to none"
            )

    def matrix(self, layer, rule):
        """Returns the `Matrix` of a layer, or `None` if it has none to train.

        Args:
            layer: A layer of `rules`.
            rule: Its rule.
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
                f"belong to one layer. Received: {variable.path}, in "
                f"{owner.name!r} and in {layer.name!r}"
            )

    def _whole_layer(self, layer, own):
        if self._fallback:
            return WholeLayerRule()
        raise ValueError(
            "Per-example curvature knows no rule for "
            f"`{type(layer).__name__}` with the weights "
            f"{', '.join(v.path for v in own)}. Register one with "
            "`keras_bdl.curvature.register_rule`, pass `fallback=True` to "
            "differentiate this layer example by example, or freeze it. "
            f"Received: layer={layer.name!r}"
        )


def matrices(model, fallback: bool = False):
    """Returns a `Matrix` for each of the `KroneckerFactors` of a step.

    Args:
        model: A built Keras model.
        fallback: As of `step`. Defaults to `False`.
    """
    plan = Plan(model, fallback)
    found = [plan.matrix(layer, rule) for layer, rule in plan.rules]
    return [matrix for matrix in found if matrix is not None]
