"""Keras's own tests of its layers, with our layers in their place.

The tests come from the installed Keras. Each test module of a layer that has a
counterpart here runs once for each kind of layer and each estimator. Draws
have a standard deviation of almost zero, so Keras's expected outputs apply to
a layer in training, too.
"""

import functools
import importlib.util
import re
import types
from unittest import mock

import keras
import keras.src
import numpy as np
import pytest

import keras_bdl as bdl

# Name of a kind: the prefix of its classes, the arguments of its layers, and
# whether layers draw weights in every call.
KINDS = {
    "MeanField": ("MeanField", {}, False),
    "MeanFieldFlipout": ("MeanField", {"estimator": "flipout"}, True),
    "MeanFieldLocal": ("MeanField", {"estimator": "local"}, True),
    "Radial": ("Radial", {}, True),
    "WeightNorm": ("WeightNorm", {}, False),
}

# Tests that do not apply, as expressions for parts of `Kind.Case.test`, with
# the reason.
LEFT_OUT = {
    r"lora|quantiz|float8|int4|int8|gptq|awq|legacy_load": (
        "LoRA, quantization and their files need a kernel that is a variable: "
        "our layers refuse them with an error, which other tests expect."
    ),
    r"conv[13]d_transpose|depthwise_conv1d": "We have no such layer.",
    r"output_padding_serialization[02]": "Of layers that we do not have.",
    r"analyze_einsum_string_axes": "Makes no layer.",
    r"dense_sparse": (
        "Its last line needs a gradient with respect to `layer.kernel`, which "
        "here is no variable. `test_run_layer_test` has sparse inputs."
    ),
    r"WeightNorm.*(conv[13]d|symbolic_invalid_configuration[02])": (
        "We have no such layer."
    ),
    r"WeightNorm.*(constraints|dense_basics)": (
        "A computed kernel has no constraint and no regularizer."
    ),
    r"(?<!^MeanField\.)ConvTranspose.*shape|shape_inference.*[1-9]$": (
        "A sixteenth of the cases is enough: the method is Keras's own."
    ),
    r"^(\w+Flipout|\w+Local|Radial)\.\w*Conv.*_basic": (
        "They take the time of all others. Shapes do not depend on the "
        "estimator, and the tests of the outputs have the same arguments."
    ),
    r"^(\w+Local|Radial)\.\w*Einsum.*_basics|^Radial\..*conv[13]d": (
        "Only flipout reads the equation. The estimator of `Radial` calls the "
        "Keras layer as it is, so convolutions in two dimensions are enough."
    ),
}


def _of_mean(name):
    """Returns a weight as a property that assigns to the mean."""

    def get(self):
        value = getattr(super(OfMeans, self), name)
        mean = getattr(self, f"{name}_mean", None)
        if value is not None and mean is not None:
            value.assign, value.constraint = mean.assign, mean.constraint
        return value

    return property(get, lambda self, value: vars(self).update({name: value}))


class OfMeans:
    """Takes the weights of the Keras layer as means."""

    kernel = _of_mean("kernel")
    embeddings = _of_mean("embeddings")
    bias = _of_mean("bias")

    def set_weights(self, weights):
        means = [p.mean for p in self.weight_posteriors]
        for mean, value in zip(means, weights, strict=True):
            mean.assign(value)


class AlwaysTrains(OfMeans):
    """Draws weights in every call."""

    def call(self, inputs, training=None):
        return super().call(inputs, training=True)


class OfKernel:
    """Takes the kernel of the Keras layer, with its direction and scale."""

    @property
    def kernel(self):
        kernel = super().kernel
        kernel.assign = self._assign_kernel
        return kernel

    def set_weights(self, weights):
        self._assign_kernel(weights[0])
        for variable, value in zip(self.weights[2:], weights[1:], strict=True):
            variable.assign(value)

    def _assign_kernel(self, value):
        self.direction.assign(value)
        axes = tuple(range(value.ndim - 1))
        self.scale.assign(np.sqrt(np.sum(value**2, axes)))


def classes_of(kind):
    """Returns classes of ours, by the name of the Keras layer they replace."""
    prefix, options, trains = KINDS[kind]
    made = {}
    for name in bdl.layers.__all__:
        cls = getattr(bdl.layers, name)
        name = name.removeprefix(prefix)
        if not hasattr(keras.layers, name) or name in ("Layer", cls.__name__):
            continue
        if options.get("estimator") not in (
            None,
            *getattr(cls, "estimators", ()),
        ):
            continue
        made[name] = _with_defaults(f"{kind}{name}", cls, options, trains)
    return made


def _with_defaults(name, cls, options, trains):
    """Returns a class that needs no arguments that the Keras layer lacks."""
    if issubclass(cls, bdl.extend.Variational):
        options = {
            "dataset_size": 8,
            # softplus(-60) is 1e-26.
            "rho_initializer": keras.initializers.Constant(-60.0),
            **options,
        }
    if hasattr(cls, "estimators"):
        mixin = AlwaysTrains if trains else OfMeans
    else:
        mixin = OfKernel

    class Ours(mixin, cls):
        made = 0

        def __init__(self, *args, **kwargs):
            Ours.made += 1
            super().__init__(*args, **{**options, **kwargs})

    Ours.__name__ = Ours.__qualname__ = name
    return keras.saving.register_keras_serializable("tests")(Ours)


class OurLayers(types.ModuleType):
    """The module of Keras's layers, with some classes replaced."""

    def __init__(self, replaced):
        super().__init__("layers")
        vars(self).update(replaced)

    def __getattr__(self, name):
        return getattr(keras.layers, name)


class OurExpectations:
    """Runs a test of Keras with the numbers of weights of our layers."""

    def setUp(self):
        filtered = keras.config.is_traceback_filtering_enabled()
        super().setUp()
        if filtered:
            self.addCleanup(keras.config.enable_traceback_filtering)

    def run_layer_test(self, layer_cls, init_kwargs, **expected):
        # `test_run_layer_test` trains each class, with each estimator.
        expected["run_training_check"] = False
        trainable = "expected_num_trainable_weights"
        if issubclass(layer_cls, bdl.extend.Variational):
            expected[trainable] *= 2  # a mean and a rho
            expected["expected_num_seed_generators"] = 1
            # The KL, in training.
            trains = issubclass(layer_cls, AlwaysTrains)
            expected["expected_num_losses"] += trains
        else:
            expected[trainable] += 1  # a direction and a scale
        super().run_layer_test(layer_cls, init_kwargs, **expected)


def cases_of(kind):
    """Yields names and classes of tests, and names of missing modules."""
    replaced = classes_of(kind)
    modules = {}
    for name, cls in replaced.items():
        module = getattr(keras.layers, name).__module__
        # Convolutions in all dimensions share a file of tests.
        module = re.sub(r"\dd\b|\dd(?=_)", "", module) + "_test"
        modules.setdefault(module, []).append(cls)
    for module, classes in modules.items():
        loaded = _loaded(module, OurLayers(replaced))
        if loaded is None:
            yield module, None
            continue
        for name, case in list(vars(loaded).items()):
            if isinstance(case, type) and issubclass(
                case, keras.src.testing.TestCase
            ):
                yield f"{kind}{name}", _case_of(kind, name, case, classes)


def _loaded(name, layers):
    """Returns a new copy of a module that imports other layers, or `None`."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None:
        return None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(keras.src, "layers", layers):
        spec.loader.exec_module(module)
    return module


def _case_of(kind, name, case, classes):
    tests = {"__module__": __name__}
    for test in dir(case):
        if test.startswith("test"):
            full = f"{kind}.{name}.{test}"
            left_out = any(re.search(part, full) for part in LEFT_OUT)
            # unittest ignores what cannot be called.
            tests[test] = (
                None if left_out else _checked(getattr(case, test), classes)
            )
    return types.new_class(
        f"{kind}{name}",
        (OurExpectations, case),
        exec_body=lambda body: body.update(tests),
    )


def _checked(test, classes):
    """Returns a test that fails if it makes no layer of ours."""

    @functools.wraps(test)
    def checked(self):
        before = sum(cls.made for cls in classes)
        test(self)
        assert sum(cls.made for cls in classes) > before, "see `LEFT_OUT`"

    return checked


MISSING = []
for _kind in KINDS:
    for _name, _case in cases_of(_kind):
        if _case is None:
            MISSING.append(_name)
        else:
            globals()[_name] = _case
del _case


def test_installed_keras_has_its_tests():
    if MISSING:
        pytest.skip(f"Keras {keras.__version__} lacks {sorted(set(MISSING))}")
