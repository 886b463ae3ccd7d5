"""Functions of the step that return a step size, a temperature or a weight."""

import math
from typing import Any

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

    def __call__(self, step: Any) -> Any:
        """Returns the step size at a step."""
        # As integers: float32 cannot count the steps of a long training.
        position = ops.mod(ops.cast(step, "int64"), self.cycle_steps)
        fraction = ops.cast(position, "float32") / self.cycle_steps
        return self.initial_learning_rate * (
            0.5 + 0.5 * ops.cos(math.pi * fraction)
        )

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "cycle_steps": self.cycle_steps,
        }


@keras.saving.register_keras_serializable(package="keras_bdl")
class LinearRamp(
    ShowsArguments, keras.optimizers.schedules.LearningRateSchedule
):
    """Changes a value linearly from one level to another.

        v_t = v_0 + (v_1 - v_0) clip((t - start_step) / (end_step - start_step))

    Use this schedule for a learning rate, for the weight of a KL, or for the
    temperature of a sampler: a short cold start lets the sampler find a mode.

    Args:
        initial_value: Value v_0 up to `start_step`.
        final_value: Value v_1 from `end_step` on.
        end_step: First step with the value v_1.
        start_step: Last step with the value v_0. Defaults to `0`.

    Example:

    ```python
    warm_up = keras_bdl.schedules.LinearRamp(0.0, 1.0, end_step=5_000)
    optimizer = keras_bdl.ATMC(temperature=warm_up)
    ```
    """

    def __init__(
        self,
        initial_value: float,
        final_value: float,
        *,
        end_step: int,
        start_step: int = 0,
    ):
        super().__init__()
        check_number("initial_value", initial_value, at_least=0.0)
        check_number("final_value", final_value, at_least=0.0)
        check_number("start_step", start_step, at_least=0)
        check_number("end_step", end_step, above=start_step)
        self.initial_value = initial_value
        self.final_value = final_value
        self.end_step = end_step
        self.start_step = start_step

    def __call__(self, step: Any) -> Any:
        """Returns the value at a step."""
        # As integers: float32 cannot count the steps of a long training.
        since = ops.cast(step, "int64") - self.start_step
        length = self.end_step - self.start_step
        done = ops.clip(ops.cast(since, "float32") / length, 0.0, 1.0)
        return self.initial_value + done * (
            self.final_value - self.initial_value
        )

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {
            "initial_value": self.initial_value,
            "final_value": self.final_value,
            "end_step": self.end_step,
            "start_step": self.start_step,
        }


@keras.saving.register_keras_serializable(package="keras_bdl")
class SWASchedule(
    ShowsArguments, keras.optimizers.schedules.LearningRateSchedule
):
    """Changes the learning rate to another constant before SWA starts.

    With `t = step / swa_start_step`, the rate is `initial_learning_rate` for
    t <= 0.5, changes linearly until t = 0.9, and is `swa_learning_rate` from
    then on.

    Args:
        initial_learning_rate: Learning rate at the start.
        swa_learning_rate: Learning rate while weights are collected.
        swa_start_step: First step of the collection: `start_epoch` of `SWA`
            or `SWAG`, times the steps per epoch.

    Example:

    ```python
    rate = keras_bdl.schedules.SWASchedule(
        0.05, 0.01, swa_start_step=160 * 391
    )
    optimizer = keras.optimizers.SGD(rate, momentum=0.9)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 5
    """

    def __init__(
        self,
        initial_learning_rate: float,
        swa_learning_rate: float,
        *,
        swa_start_step: int,
    ):
        super().__init__()
        for name, value in (
            ("initial_learning_rate", initial_learning_rate),
            ("swa_learning_rate", swa_learning_rate),
            ("swa_start_step", swa_start_step),
        ):
            check_number(name, value, above=0.0)
        self.initial_learning_rate = initial_learning_rate
        self.swa_learning_rate = swa_learning_rate
        self.swa_start_step = swa_start_step

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate at a step."""
        t = ops.cast(step, "float32") / self.swa_start_step
        done = ops.clip((t - 0.5) / 0.4, 0.0, 1.0)
        difference = self.swa_learning_rate - self.initial_learning_rate
        return self.initial_learning_rate + done * difference

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "swa_learning_rate": self.swa_learning_rate,
            "swa_start_step": self.swa_start_step,
        }
