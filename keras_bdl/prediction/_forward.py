"""The traced average of a prediction."""

import weakref
from typing import Any

import keras
import tensorflow as tf

from keras_bdl.prediction._average_options import AverageOptions
from keras_bdl.prediction._averages import with_all_samples
from keras_bdl.prediction._network_average import NetworkAverage
from keras_bdl.prediction._sample_stack import SampleStack
from keras_bdl.prediction._traced import ModelCache
from keras_bdl.prediction._traced import traced

_CACHE = ModelCache()


class Forward:
    """Averages the outputs of a model over samples, compiled for the model.

    `forward_of` keeps one object for each model and options.

    Args:
        model: A Keras model.
        options: The `AverageOptions`.

    Attributes:
        average: The `NetworkAverage`.
    """

    def __init__(self, model: keras.Model, options: AverageOptions):
        reference: Any = weakref.ref(model)
        self.average = NetworkAverage(
            reference, options, uses_xla=lambda: bool(reference().jit_compile)
        )
        self._function = traced(model, self.average, sharded=True)

    def __call__(
        self, inputs: Any, stack: SampleStack, seeds: list[tf.Tensor]
    ) -> list[dict[str, Any]]:
        """Returns a flat list: the average of each output, as tensors.

        Args:
            inputs: A batch of nested arrays.
            stack: The samples.
            seeds: For each seed generator of the model, a tensor with a state
                for each sample.
        """
        fixed = self.average.fixed_values(stack.values)
        found = self._function(inputs, fixed, [*stack.stacked, *seeds])
        return [with_all_samples(average, len(stack)) for average in found]


def forward_of(model: keras.Model, options: AverageOptions) -> Forward:
    """Returns the `Forward` of a model, new or from an earlier call.

    Args:
        model: A Keras model.
        options: The `AverageOptions`.
    """
    return _CACHE.get(model, options, lambda: Forward(model, options))
