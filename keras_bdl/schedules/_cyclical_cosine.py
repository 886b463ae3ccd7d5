"""A step size that falls along half a cosine in every cycle."""

import math

import keras
from keras import ops

from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import check_number


@keras.saving.register_keras_serializable(package="keras_bdl")
class CyclicalCosine(
    ShowsArguments, keras.optimizers.schedules.LearningRateSchedule
):
    """Decreases the step size along half a cosine in every cycle.

        h_t = h0/2 (1 + cos(pi frac)),  frac = (t mod cycle_steps)/cycle_steps

    Use this schedule to sample several modes. At the start of a cycle, large
    steps move the sampler away from its mode. At the end of a cycle, the
    sampler settles in a mode, and its last state is the posterior sample.

    Args:
        initial_learning_rate: Step size h0 at the start of a cycle.
        cycle_steps: Number of steps of a cycle.

    Example:

    ```python
    cycle = keras_bdl.schedules.CyclicalCosine(1e-3, cycle_steps=50 * 391)
    optimizer = keras_bdl.ATMC(learning_rate=cycle)
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
        # As integers: float32 cannot count the steps of a long training.
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
