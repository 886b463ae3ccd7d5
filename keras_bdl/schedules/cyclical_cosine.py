"""The step size of cyclical sampling."""

import math

import keras
from keras import ops

from keras_bdl.arguments import ShowsArguments
from keras_bdl.arguments import check_number


@keras.saving.register_keras_serializable(package="keras_bdl")
class CyclicalCosine(
    ShowsArguments, keras.optimizers.schedules.LearningRateSchedule
):
    """Falls along half a cosine, again and again.

        h_t = h0/2 (1 + cos(pi frac)),  frac = (t mod cycle_steps)/cycle_steps

    At the begin of a cycle the sampler leaves the mode it was in, at its end
    it settles: the last state of a cycle is the sample.

    Args:
        initial_learning_rate: h0.
        cycle_steps: Steps of a cycle.

    Example:

    ```python
    cycle = keras_bdl.schedules.CyclicalCosine(1e-3, cycle_steps=50 * 391)
    optimizer = keras_bdl.ATMC(learning_rate=cycle, dataset_size=50_000)
    ```

    Reference:
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), section 5
    """

    def __init__(self, initial_learning_rate: float, cycle_steps: int):
        super().__init__()
        check_number("initial_learning_rate", initial_learning_rate, above=0.0)
        check_number("cycle_steps", cycle_steps, at_least=1, integer=True)
        self.initial_learning_rate = initial_learning_rate
        self.cycle_steps = cycle_steps

    def __call__(self, step):
        """Returns the step size at a step."""
        # In integers: float32 cannot count the steps of a long training.
        position = ops.mod(ops.cast(step, "int64"), self.cycle_steps)
        fraction = ops.cast(position, "float32") / self.cycle_steps
        return self.initial_learning_rate * (
            0.5 + 0.5 * ops.cos(math.pi * fraction)
        )

    def get_config(self):
        """Returns all arguments."""
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "cycle_steps": self.cycle_steps,
        }
