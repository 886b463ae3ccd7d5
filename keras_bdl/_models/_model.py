"""`Model` and `Sequential`: how they are made, and how Keras clones them.

Keras turns a subclass of `keras.Model` into a functional model when the class
is called with inputs and outputs: Keras rewrites the bases of the class *and of
all its parents*. After the first `keras_bdl.Model(inputs, outputs)`, every
subclass with its own `call` would also be functional, and fail. This file
therefore makes a twin: a class derived from the subclass and the functional
class. The twin leaves its parents unchanged.

`keras.models.clone_model` makes a plain `keras.Sequential` of every sequential
model, and a plain functional model of every functional model whose class has a
constructor of its own. Plain models have no Bayesian training step, and
`clone_model` has no hook for the class of the copy. So the first model of this
library replaces two private functions of Keras, which for other models do what
they did before.
"""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

from keras_bdl import _keras
from keras_bdl._models._compile import BayesianModel


def is_functional_call(args: Any, kwargs: Any) -> bool:
    """Returns whether `Model(*args, **kwargs)` gets inputs and outputs."""
    return (
        len(args) >= 2
        or (len(args) == 1 and "outputs" in kwargs)
        or ("inputs" in kwargs and "outputs" in kwargs)
    )


@functools.cache
def functional_class() -> Any:
    """Returns the class of the functional models of Keras.

    The class has no public name. Every functional model is an instance of it.
    """
    tensor = keras.Input((1,), name="probe_input")
    output = keras.layers.Identity(name="probe_layer")(tensor)
    return type(keras.Model(tensor, output, name="probe"))


class _Unannounced:
    """Keeps Python from calling `__init_subclass__` of the twin's parents."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


@functools.cache
def functional_twin(cls: Any) -> Any:
    """Returns the twin of `cls`, a subclass for functional models."""
    if issubclass(cls, functional_class()):
        return cls

    def reduce(self: Any) -> tuple:
        # Another process could not find the twin by its name.
        _, state = super(twin, self).__reduce__()
        return _keras.unpickler(cls), state

    twin: Any = type(
        cls.__name__,
        (_Unannounced, cls, functional_class()),
        {
            "__doc__": cls.__doc__,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__reduce__": reduce,
        },
    )
    # Keras saves the twin under the name of `cls`, and loads `cls`.
    package, _, name = keras.saving.get_registered_name(cls).rpartition(">")
    if package:
        keras.saving.register_keras_serializable(package, name)(twin)
        keras.saving.register_keras_serializable(package, name)(cls)
    return twin


@keras.saving.register_keras_serializable(package="keras_bdl")
class Model(BayesianModel):
    """Drop-in for `keras.Model` that Bayesian methods can train.

    Use this class like `keras.Model`: as `Model(inputs, outputs)`, as a
    subclass with a `call`, or as a subclass whose `__init__` makes a
    functional model. Without a Bayesian method, the model trains bit for bit
    like `keras.Model`. The class adds to `keras.Model`:

    - `fit` counts the training examples N, and gives N to the optimizer,
      objective, layers and regularizers without a `dataset_size`. If only
      reading the data tells their size, N is an estimate in the first epoch
      and exact from then on.
    - `compile(train_samples=..., samples=...)` sets the numbers of posterior
      samples in training and in evaluation.
    - An optimizer or objective may run the training step.

    If a method uses N, the loss must be the mean negative log-likelihood of the
    examples. A sum over the batch raises an error. A loss that implies a
    certain noise, such as the mean squared error, gives a warning. The compiled
    loss defines whether the outputs are logits, probabilities, or means and
    deviations. A metric that reads the outputs in another way raises an error.

    Args:
        *args: Arguments of `keras.Model`.
        **kwargs: Arguments of `keras.Model`.

    Example:

    ```python
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Flatten()(inputs)
    model = keras_bdl.Model(inputs, keras.layers.Dense(2)(hidden))
    ```
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Makes an object of the functional twin if given inputs and outputs.

        The top of this file describes the functional twin.
        """
        _keras.wrap_clone_functions(_keeping_our_classes)
        made: Any = cls
        if cls is Model and is_functional_call(args, kwargs):
            made = functional_twin(made)
        return super().__new__(made, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any):
        if is_functional_call(args, kwargs):
            # A subclass may make its inputs and outputs in its `__init__`,
            # after `__new__`.
            kind: Any = type(self)
            self.__class__ = functional_twin(kind)
            functional_class().__init__(self, *args, **kwargs)
        else:
            super().__init__(*args, **kwargs)


@keras.saving.register_keras_serializable(package="keras_bdl")
class Sequential(BayesianModel, keras.Sequential):
    """Drop-in for `keras.Sequential` that Bayesian methods can train.

    The class adds to `keras.Sequential` the same features as
    `keras_bdl.Model` adds to `keras.Model`.

    Args:
        layers: List of layers. Defaults to `None`, an empty stack.
        trainable: Whether the variables are trained. Defaults to `True`.
        name: Name of the model. Defaults to `None`: Keras makes a name.

    Example:

    ```python
    model = keras_bdl.Sequential(
        [keras.Input((784,)), keras.layers.Dense(10)]
    )
    ```
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Lets `keras.models.clone_model` keep the class."""
        _keras.wrap_clone_functions(_keeping_our_classes)
        return super().__new__(cls)

    def __init__(
        self,
        layers: Sequence[keras.layers.Layer] | None = None,
        trainable: bool = True,
        name: str | None = None,
    ):
        super().__init__(layers=layers, trainable=trainable, name=name)


def _keeping_our_classes(clone: Callable) -> Callable:
    def mended(model: keras.Model, *args: Any, **kwargs: Any) -> keras.Model:
        if not isinstance(model, BayesianModel):
            return clone(model, *args, **kwargs)
        plain: Any = object.__new__(type(model))
        vars(plain).update(vars(model), compiled=False)
        copy = clone(plain, *args, **kwargs)
        if not isinstance(copy, BayesianModel):
            copy = _of_our_class(type(model), copy)
        config = model.get_compile_config() if model.compiled else None
        if config is not None:
            copy.compile_from_config(config)
        return copy

    return mended


def _of_our_class(cls: Any, copy: keras.Model) -> BayesianModel:
    """Returns a model of the same layers."""
    if not isinstance(copy, keras.Sequential):
        return Model(copy.input, copy.output, name=copy.name)
    # A constructor of the class may need other arguments.
    if cls.__init__ is not Sequential.__init__:
        cls = Sequential
    layers = _keras.tracked_layers(copy)
    return cls(layers, name=copy.name, trainable=copy.trainable)
