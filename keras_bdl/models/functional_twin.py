"""Makes functional models of our classes without harming the classes.

Keras turns a subclass of `keras.Model` that is called with inputs and outputs
into a functional model by rewriting the bases of the class *and of all its
parents*. After the first `keras_bdl.Model(inputs, outputs)` every subclass
with a `call` of its own would be functional too, and fail. So ours are made of
a twin: a class derived from both, which leaves its parents as they are.
"""

import functools

import keras


def is_functional_call(args, kwargs):
    """Whether `Model(*args, **kwargs)` names inputs and outputs."""
    return (
        len(args) >= 2
        or (len(args) == 1 and "outputs" in kwargs)
        or ("inputs" in kwargs and "outputs" in kwargs)
    )


@functools.cache
def functional_class():
    """Returns the class of Keras's functional models.

    It has no public name, but every functional model is an instance of it.
    """
    tensor = keras.Input((1,), name="probe_input")
    output = keras.layers.Identity(name="probe_layer")(tensor)
    return type(keras.Model(tensor, output, name="probe"))


class _Unannounced:
    """Keeps a twin from being announced to the parents as a subclass."""

    def __init_subclass__(cls, **kwargs):
        pass


@functools.cache
def functional_twin(cls):
    """Returns the functional class derived from `cls`."""
    if issubclass(cls, functional_class()):
        return cls

    def reduce(self):
        # The twin has no name by which another process could find it.
        _, state = super(twin, self).__reduce__()
        return cls._unpickle_model, state

    twin = type(
        cls.__name__,
        (_Unannounced, cls, functional_class()),
        {
            "__doc__": cls.__doc__,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__reduce__": reduce,
        },
    )
    # Saved under the name of `cls`, and loaded through `cls`.
    package, _, name = keras.saving.get_registered_name(cls).rpartition(">")
    if package:
        keras.saving.register_keras_serializable(package, name)(twin)
        keras.saving.register_keras_serializable(package, name)(cls)
    return twin
