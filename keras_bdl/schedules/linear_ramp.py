"""A value that goes from one level to another."""

import keras
from keras import ops

from keras_bdl.arguments import ShowsArguments
from keras_bdl.arguments import check_number


@keras.saving.register_keras_serializable(package="keras_bdl")
class LinearRamp(
    ShowsArguments, keras.optimizers.schedules.LearningRateSchedule
):
    """Stays at one value, goes straight to another, and stays there.

        v_t = v_0 + (v_1 - v_0) clip((t - begin_step) / (end_step - begin_step))

    For whatever takes a schedule: the temperature of a sampler, which a short
    cold start brings to a mode; the learning rate; the weight of a KL.

    Args:
        initial_value: v_0.
        final_value: v_1.
        end_step: The step from which on the value is v_1.
        begin_step: The step up to which it is v_0. Defaults to `0`.

    Example:

    ```python
    warm_up = keras_bdl.schedules.LinearRamp(0.0, 1.0, end_step=5_000)
    optimizer = keras_bdl.ATMC(temperature=warm_up, dataset_size=50_000)
    ```
    """

    def __init__(
        self,
        initial_value: float,
        final_value: float,
        end_step: int,
        begin_step: int = 0,
    ):
        super().__init__()
        check_number("initial_value", initial_value, at_least=0.0)
        check_number("final_value", final_value, at_least=0.0)
        check_number("begin_step", begin_step, at_least=0)
        check_number("end_step", end_step, above=begin_step)
        self.initial_value = initial_value
        self.final_value = final_value
        self.end_step = end_step
        self.begin_step = begin_step

    def __call__(self, step):
        """Returns the value at a step."""
        # In integers: float32 cannot count the steps of a long training.
        since = ops.cast(step, "int64") - self.begin_step
        length = self.end_step - self.begin_step
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
            "begin_step": self.begin_step,
        }
