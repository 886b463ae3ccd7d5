import inspect

import keras
import pytest

from keras_bdl._inherited_arguments import InheritedArguments
from keras_bdl._inherited_arguments import inherits_arguments
from keras_bdl.layers import MeanFieldDense


class Base(InheritedArguments):
    """A base.

    Args:
        rate: The rate.
        seed: The seed,
            over two lines.
    """

    def __init__(self, rate, *, seed=0):
        self.rate, self.seed = rate, seed


class Leaf(Base):
    """A leaf.

    Args:
        speed: The speed.

    Example:
        Leaf(1)
    """

    def __init__(self, rate=0.5, *, speed=2.0, **kwargs):
        super().__init__(rate, **kwargs)
        self.speed = speed


class Silent(Leaf):
    """A leaf that owns nothing."""


class Units(InheritedArguments):
    """Wraps a layer of Keras.

    Args:
        *args: As of the layer.
        noise: The noise.
        **kwargs: As of the layer.
    """

    def __init__(self, *args, noise=1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.noise = noise


class NoisyDense(Units, keras.layers.Dense):
    """A dense layer with noise."""


class Adaptive(InheritedArguments, keras.optimizers.Optimizer):
    """An optimizer.

    Args:
        friction: The friction.
        **kwargs: Refused.
    """

    def __init__(self, learning_rate=0.1, *, friction=0.9, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)


class Faster(Adaptive):
    """An optimizer that owns no argument."""


@pytest.mark.parametrize("cls", [Leaf, Silent])
def test_the_signature_has_the_arguments_of_all_bases(cls):
    expected = "(rate=0.5, *, speed=2.0, seed=0)"
    assert str(inspect.signature(cls)) == expected


@pytest.mark.parametrize("cls", [Leaf, Silent])
def test_help_documents_the_arguments_of_all_bases(cls):
    doc = inspect.getdoc(cls)
    arguments = doc.partition("Args:\n")[2].partition("\n\n")[0]
    assert arguments.rstrip() == (
        "    rate: The rate.\n    speed: The speed.\n"
        "    seed: The seed,\n        over two lines."
    )
    assert ("Example:\n    Leaf(1)" in doc) == (cls is Leaf)


def test_a_layer_shows_the_arguments_of_its_layer_of_keras():
    parameters = inspect.signature(NoisyDense).parameters
    assert list(parameters)[:2] == ["units", "activation"]
    assert parameters["noise"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "\n    units: " in inspect.getdoc(NoisyDense)
    assert "*args" not in inspect.getdoc(NoisyDense)
    assert NoisyDense(3, noise=2.0).noise == 2.0


def test_an_optimizer_hides_the_options_of_keras_that_it_does_not_name():
    shown = str(inspect.signature(Adaptive))
    assert shown == "(learning_rate=0.1, *, friction=0.9, **kwargs)"


def test_help_documents_the_options_of_keras():
    assert "**kwargs: Refused." in inspect.getdoc(Faster)


class Wide(InheritedArguments):
    """A base with two positional arguments."""

    def __init__(self, rate, size=3, *, seed=0):
        self.rate, self.size, self.seed = rate, size, seed


class Narrow(Wide):
    """Changes the default of the first argument alone."""

    def __init__(self, rate=2.0, *args, **kwargs):
        super().__init__(rate, *args, **kwargs)


def test_positional_arguments_that_are_passed_on_stay_positional():
    assert str(inspect.signature(Narrow)) == "(rate=2.0, size=3, *, seed=0)"
    assert Narrow(1.0, 5).size == 5


def test_subclass_may_begin_with_an_optional_argument_and_set_a_required_one():
    class Mine(MeanFieldDense):
        def __init__(self, rate=0.1, **kwargs):
            super().__init__(10, **kwargs)

    class PassesAll(MeanFieldDense):
        def __init__(self, rate=0.1, *args, **kwargs):
            super().__init__(10, *args, **kwargs)

    assert Mine(activation="relu").units == 10
    assert PassesAll(0.2, "relu").units == 10
    for cls in (Mine, PassesAll):
        first = next(iter(inspect.signature(cls).parameters.values()))
        assert str(first) == "rate=0.1"


@inherits_arguments(Leaf, without=("seed",))
def measure(model, rate, **options):
    """Measures a model.

    Args:
        model: The model.
        rate: The rate of the measurement.

    Returns:
        A number.
    """
    return Leaf(rate, seed=1, **options)


def test_function_shows_the_arguments_that_it_passes_on():
    assert str(inspect.signature(measure)) == "(model, rate, *, speed=2.0)"
    assert inspect.getdoc(measure).splitlines()[2:] == [
        "Args:",
        "    model: The model.",
        "    rate: The rate of the measurement.",
        "    speed: The speed.",
        "",
        "Returns:",
        "    A number.",
    ]
    assert measure(None, 3, speed=4.0).speed == 4.0
