"""The learning rate of stochastic weight averaging."""

import keras
from keras import ops

from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import check_number


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

    def __call__(self, step):
        """Returns the learning rate at a step."""
        t = ops.cast(step, "float32") / self.swa_start_step
        done = ops.clip((t - 0.5) / 0.4, 0.0, 1.0)
        difference = self.swa_learning_rate - self.initial_learning_rate
        return self.initial_learning_rate + done * difference

    def get_config(self):
        """Returns all arguments."""
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "swa_learning_rate": self.swa_learning_rate,
            "swa_start_step": self.swa_start_step,
        }
