"""Keras's harness for layers, `run_layer_test`, over every layer of ours."""

import inspect

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from tests.conformal.helpers import classified

testing = pytest.importorskip("keras.src.testing")  # where wheels have it

IMAGE = (2, 5, 5, 2)
# By the name of the Keras layer: the shapes of inputs and outputs, and the
# arguments.
OF_KERAS = {
    "Dense": ((2, 3), (2, 4), {"units": 4, "activation": "relu"}),
    "EinsumDense": (
        (2, 3, 4),
        (2, 3, 2, 5),
        {
            "equation": "abc,cde->abde",
            "output_shape": (3, 2, 5),
            "bias_axes": "de",
        },
    ),
    "Conv1D": (
        (2, 5, 2),
        (2, 5, 3),
        {"filters": 3, "kernel_size": 2, "padding": "causal"},
    ),
    "Conv2D": (IMAGE, (2, 4, 4, 3), {"filters": 3, "kernel_size": 2}),
    "Conv3D": (
        (2, 3, 3, 3, 1),
        (2, 2, 2, 2, 2),
        {"filters": 2, "kernel_size": 2},
    ),
    "Conv2DTranspose": (
        IMAGE,
        (2, 10, 10, 3),
        {"filters": 3, "kernel_size": 2, "strides": 2},
    ),
    "DepthwiseConv2D": (IMAGE, (2, 4, 4, 2), {"kernel_size": 2}),
    "Embedding": ((2, 3), (2, 3, 4), {"input_dim": 5, "output_dim": 4}),
}


def public_layers():
    """Returns every layer class that a user can import, by name."""
    folders = [bdl, *filter(inspect.ismodule, vars(bdl).values())]
    public = [
        getattr(folder, name)
        for folder in folders
        for name in getattr(folder, "__all__", ())
    ]
    return {
        x.__name__: x
        for x in public
        if inspect.isclass(x)
        and issubclass(x, keras.layers.Layer)
        and not issubclass(x, keras.Model)
    }


def adapted_layer():
    down, up = (
        bdl.layers.MeanFieldDense(units, use_bias=False, dataset_size=8)
        for units in (2, 4)
    )
    yield {
        "init_kwargs": {
            "layer": keras.layers.Dense(4, use_bias=False),
            "down": down,
            "up": up,
            "scale": 0.5,
        },
        "call_kwargs": {"training": True},
        "input_shape": (2, 3),
        "expected_output_shape": (2, 4),
        "expected_num_trainable_weights": 4,
        "expected_num_losses": 2,
    }


def conformal_layer():
    # The harness passes no dictionary as one argument, as intervals need.
    for method, classes in (
        (bdl.conformal.LAC(per_class=True), 5),
        (bdl.conformal.APS(), 5),
        (bdl.conformal.RAPS(), 5),
        (bdl.conformal.RiskControl(), 2),
    ):
        risk = {"risk": 0.2} if classes == 2 else {}
        data = classified(200, classes)
        yield {
            "init_kwargs": {"method": method.fit(data, **risk)},
            "input_shape": (3, classes),
            "expected_output_shape": (3, classes)[: 1 + (classes > 2)],
            "expected_output_dtype": "bool",
            "expected_num_trainable_weights": 0,
            "run_training_check": False,
        }


def learned_stddev():
    yield {
        "init_kwargs": {"initial_stddev": 0.5},
        "input_shape": (2, 3),
        "expected_output_shape": (2, 6),
        "expected_num_trainable_weights": 1,
        "expected_num_losses": 0,
    }


def mc_dropout():
    for layer in (
        keras.layers.Dense(4),
        bdl.layers.MeanFieldDense(4, dataset_size=8),
    ):
        yield {
            "init_kwargs": {"layer": layer, "rate": 0.25},
            "call_kwargs": {"training": True},
            "input_shape": (2, 3),
            "expected_output_shape": (2, 4),
        }


def variational(cls, of_keras):
    shape, outputs, arguments = OF_KERAS[of_keras]
    is_table = of_keras == "Embedding"
    for estimator in cls.estimators:
        case = {
            "init_kwargs": {
                **arguments,
                "estimator": estimator,
                "dataset_size": 8,
            },
            "call_kwargs": {"training": True},
            "input_shape": shape,
            "input_dtype": "int32" if is_table else "float32",
            "expected_output_shape": outputs,
            # A mean and a rho for the kernel, and for the bias if any.
            "expected_num_trainable_weights": 2 if is_table else 4,
            "expected_num_losses": 1,
            "expected_num_seed_generators": 1,
            "supports_masking": of_keras == "Dense",
            # Training takes most of the time: the estimator with most code.
            "run_training_check": estimator == cls.estimators[-1],
        }
        yield case
        if of_keras in ("Dense", "Embedding"):
            yield {**case, "input_sparse": True, "run_training_check": False}


def weight_norm(of_keras):
    shape, outputs, arguments = OF_KERAS[of_keras]
    yield {
        "init_kwargs": arguments,
        "input_shape": shape,
        "expected_output_shape": outputs,
        "expected_num_trainable_weights": 3,
        "expected_num_losses": 0,
    }


CASES = {
    "AdaptedLayer": adapted_layer,
    "ConformalLayer": conformal_layer,
    "LearnedStddev": learned_stddev,
    "MCDropout": mc_dropout,
}


def cases_of(name, cls):
    """Returns the arguments of the harness; fails for a class without any."""
    if name in CASES:
        return CASES[name]()
    if issubclass(cls, bdl.extend.Variational):
        of_keras = name.removeprefix("MeanField").removeprefix("Radial")
        return variational(cls, of_keras)
    return weight_norm(name.removeprefix("WeightNorm"))


def all_cases():
    """Yields parameters of `pytest`."""
    for name, cls in public_layers().items():
        for number, case in enumerate(cases_of(name, cls)):
            words = [name, case["init_kwargs"].get("estimator", number)]
            words += ["sparse"] * case.get("input_sparse", False)
            yield pytest.param(cls, case, id=" ".join(map(str, words)))


ALL_CASES = list(all_cases())
# Of each class.
FIRST_CASES = list({case.values[0]: case for case in ALL_CASES[::-1]}.values())


@pytest.mark.parametrize("cls, case", ALL_CASES)
def test_layer_passes_the_checks_of_keras(cls, case):
    testing.TestCase().run_layer_test(cls, **case)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize("cls, case", FIRST_CASES)
def test_layer_gives_the_dtype_that_it_declares(cls, case, dtype):
    layer = cls(**{**case["init_kwargs"], "dtype": dtype})
    inputs = keras.Input(case["input_shape"][1:], dtype=case.get("input_dtype"))
    outputs = layer(keras.ops.ones(case["input_shape"], inputs.dtype))
    assert layer(inputs).dtype == outputs.dtype
    assert np.isfinite(outputs).all()
