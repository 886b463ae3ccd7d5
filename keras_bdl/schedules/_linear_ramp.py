"""A value that changes linearly from one level to another."""

import keras
from keras import ops

from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import check_number


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

    def __call__(self, step):
        """Returns the value at a step."""
        # As integers: float32 cannot count the steps of a long training.
        since = ops.cast(step, "int64") - self.start_step
        length = self.end_step - self.start_step
        done = ops.clip(ops.cast(since, "float32") / length, 0.0, 1.0)
        return self.initial_value + done * (
            self.final_value - self.initial_value
        )

    def get_config(self):
        """Returns all arguments."""
        return {
            "initial_value": self.initial_value,
            "final_value": self.final_value,
            "end_step": self.end_step,
            "start_step": self.start_step,
        }
