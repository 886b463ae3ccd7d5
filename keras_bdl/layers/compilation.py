"""Compiles the draw of the weights where the training step is not compiled."""

import functools
import math
import platform

import keras
import tensorflow as tf

from keras_bdl.distributions import StoredPrior
from keras_bdl.priors import Prior
from keras_bdl.priors import TFPDistribution

# Compiling takes half a second, which a smaller layer saves in no training.
SMALLEST_SIZE = 2**14

# Where few positions share a weight, its draw takes longer than its use.
LAYERS = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding)


def worth_compiling(layer):
    """Whether XLA is to compile the draw of the weights of a layer.

    On a machine with nothing but CPUs, Keras does not compile training steps.
    A draw is some twenty operations on each weight: one by one, they take
    longer than the rest of the step of a dense layer.
    """
    sizes = [math.prod(p.shape) for p in layer.weight_posteriors]
    return (
        isinstance(layer, LAYERS)
        and max(sizes) >= SMALLEST_SIZE
        and all(_is_compilable(p.prior) for p in layer.weight_posteriors)
        and not tf.executing_eagerly()
        and not tf.distribute.has_strategy()
        and _keras_leaves_it_to_us()
    )


@functools.cache
def _keras_leaves_it_to_us():
    kinds = {d.device_type for d in tf.config.list_physical_devices()}
    # Not every other system has XLA for CPUs.
    return kinds == {"CPU"} and platform.system() == "Linux"


def _is_compilable(prior):
    ours = isinstance(prior, (Prior, StoredPrior))
    return ours and not isinstance(prior, TFPDistribution)


class CompiledDraw:
    """Keeps a compiled function for all traces.

    In a plain object: as an attribute of a layer it would be exported with it.
    """

    def __init__(self):
        self._function = None

    def of(self, function):
        """Returns the function, compiled when it was first given."""
        if self._function is None:
            self._function = tf.function(
                function, jit_compile=True, autograph=False
            )
        return self._function

    def forget(self):
        """Compiles again what is given next."""
        self._function = None
