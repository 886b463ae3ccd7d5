"""The draw of all weights of a layer, compiled or with a shared trace."""

import functools
import math
from typing import Any

import keras

from keras_bdl import _backend
from keras_bdl.layers import _weight_draw as weight_draw
from keras_bdl.layers._weight_priors import StoredPrior
from keras_bdl.priors._prior import Prior
from keras_bdl.priors._tfp_distribution import TFPDistribution

# In these layers few positions share a weight, so the draw of a weight takes
# longer than its use.
LAYERS = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding)


def worth_compiling(layer: Any) -> bool:
    """Returns whether XLA should compile the draw of the weights of a layer.

    A draw has about twenty operations per weight. Without compilation, they
    take longer than the rest of the step of a dense layer.
    """
    return (
        isinstance(layer, LAYERS)
        and all(
            isinstance(p.prior, (Prior, StoredPrior))
            and not isinstance(p.prior, TFPDistribution)
            for p in layer.weight_posteriors
        )
        and _backend.pays_to_compile(
            max(math.prod(p.shape) for p in layer.weight_posteriors)
        )
    )


class CompiledDraw:
    """Keeps the compiled functions that draw the weights, for all traces.

    A separate function makes the random numbers. If one function made the
    numbers and used them, XLA would make the numbers again at each use. The
    functions are not attributes of the layer, because Keras would export them.
    """

    def __init__(self) -> None:
        self._functions: tuple | None = None

    def of(self, layer: Any, tensors: Any, seed: Any, annealed: Any) -> Any:
        """Returns what `weight_draw.results_of` returns for new numbers.

        The first call compiles the functions, if that is worth it. Otherwise,
        layers alike share a trace. The result has a gradient with respect to
        the tensors that each of the `weight_posteriors` read.
        """
        numbers = functools.partial(weight_draw.numbers_of, layer)
        outputs = functools.partial(weight_draw.results_of, layer)
        if not worth_compiling(layer):
            return _backend.call_shared(
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
                _backend.compile_part(numbers),
                _backend.compile_recomputed(outputs),
            )
        numbers, outputs = self._functions
        return outputs(tensors, numbers(seed), seed, annealed)

    def forget(self) -> None:
        """Makes the next call compile its functions again."""
        self._functions = None
