"""Draws of weights, compiled or with a shared trace."""

import functools
import math

import keras
import tensorflow as tf

from keras_bdl._backend import call_shared
from keras_bdl._backend import compile_part
from keras_bdl._backend import pays_to_compile
from keras_bdl.distributions._stored_prior import StoredPrior
from keras_bdl.layers import _weight_draw as weight_draw
from keras_bdl.priors import TFPDistribution
from keras_bdl.priors._prior import Prior

# In these layers few positions share a weight, so the draw of a weight takes
# longer than its use.
LAYERS = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding)


def worth_compiling(layer):
    """Returns whether XLA should compile the draw of the weights of a layer.

    A draw has about twenty operations per weight. Without compilation, they
    take longer than the rest of the step of a dense layer.

    Args:
        layer: A variational layer that is built.
    """
    sizes = [math.prod(p.shape) for p in layer.weight_posteriors]
    return (
        isinstance(layer, LAYERS)
        and all(_is_compilable(p.prior) for p in layer.weight_posteriors)
        and pays_to_compile(max(sizes))
    )


def _is_compilable(prior):
    ours = isinstance(prior, (Prior, StoredPrior))
    return ours and not isinstance(prior, TFPDistribution)


class CompiledDraw:
    """Keeps the compiled functions that draw the weights, for all traces.

    A separate function makes the random numbers. If one function made the
    numbers and used them, XLA would make the numbers again at each use. The
    gradient computes the results a second time, which is faster than storing
    the parts of a KL in memory.

    The functions are not attributes of the layer, because Keras would export
    them.
    """

    def __init__(self):
        self._functions = None

    def of(self, layer, tensors, seed, annealed):
        """Returns what `weight_draw.results_of` returns for new numbers.

        The first call compiles the functions, if that is worth it. Otherwise,
        layers alike share a trace. The result has a gradient with respect to
        the tensors.

        Args:
            layer: The variational layer.
            tensors: The tensors that each of its `weight_posteriors` read.
            seed: Seed of the numbers.
            annealed: Factor of the noise in the weights.
        """
        numbers = functools.partial(weight_draw.numbers_of, layer)
        outputs = functools.partial(weight_draw.results_of, layer)
        if not worth_compiling(layer):
            return call_shared(
                lambda tensors, seed, annealed: outputs(
                    tensors, numbers(seed), seed, annealed
                ),
                tensors,
                seed,
                annealed,
                key=weight_draw.constants_of(layer),
                sizes=True,
            )
        if self._functions is None:
            self._functions = (
                compile_part(numbers),
                compile_part(outputs),
                compile_part(functools.partial(_gradients, outputs)),
            )
        numbers, outputs, gradients = self._functions
        structures = {}

        @tf.custom_gradient
        def draw(*flat):
            packed = tf.nest.pack_sequence_as(tensors, flat)
            arguments = packed, numbers(seed), seed, annealed
            results = outputs(*arguments)
            structures["results"] = results
            return tf.nest.flatten(results), lambda *upstream: gradients(
                *arguments, upstream
            )

        flat = draw(*tf.nest.flatten(tensors))
        return tf.nest.pack_sequence_as(structures["results"], flat)

    def forget(self):
        """Makes the next call compile its functions again."""
        self._functions = None


def _gradients(function, tensors, numbers, seed, annealed, upstream):
    """Returns the products of upstream with the derivatives of a function."""
    flat = tf.nest.flatten(tensors)
    with tf.GradientTape() as tape:
        tape.watch(flat)
        results = tf.nest.flatten(function(tensors, numbers, seed, annealed))
    return tape.gradient(results, flat, upstream, tf.UnconnectedGradients.ZERO)
