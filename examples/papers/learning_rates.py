"""Learning rates and their schedules."""

import keras

import keras_bdl as bdl

# Share of the learning rate that is left at the end of a linear schedule.
LAST_PART = 0.01


def of(settings, steps):
    """Returns a learning rate, or a schedule.

    The first of these settings that is given decides:

    - `schedule="linear"`: constant for the first half of `schedule_epochs`,
      then a linear fall to a hundredth.
    - `swa_learning_rate`: the same shape, which reaches this rate at
      `start_epoch`.
    - `schedule="cosine"`: a fall to zero along a cosine.
    - `learning_rate_decay`: a factor after every epoch.
    - `milestones`: the factor `learning_rate_factor` after each of these
      epochs. With `warmup_learning_rate`, the schedule starts with a linear
      rise from that rate, over `warmup_epochs`.

    Args:
        settings: The `Settings`.
        steps: Steps of an epoch.
    """
    rate = settings.learning_rate
    if settings.schedule == "linear":
        epochs = settings.schedule_epochs
        all_steps = (settings.epochs if epochs is None else epochs) * steps
        if not all_steps:  # nothing is trained
            return rate
        return bdl.schedules.SWASchedule(
            rate, LAST_PART * rate, swa_start_step=all_steps
        )
    if settings.swa_learning_rate is not None:
        final, start = settings.swa_learning_rate, settings.start_epoch
        if not start:
            return final
        return bdl.schedules.SWASchedule(
            rate, final, swa_start_step=start * steps
        )
    if settings.schedule == "cosine":
        all_steps = settings.epochs * steps
        return keras.optimizers.schedules.CosineDecay(rate, all_steps)
    if settings.learning_rate_decay != 1.0:
        return keras.optimizers.schedules.ExponentialDecay(
            rate, steps, settings.learning_rate_decay, staircase=True
        )
    if settings.milestones is not None:
        factor, milestones = settings.learning_rate_factor, settings.milestones
        schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
            [milestone * steps - 1 for milestone in milestones],
            [rate * factor**k for k in range(len(milestones) + 1)],
        )
        if settings.warmup_learning_rate is not None:
            return WarmUp(
                settings.warmup_learning_rate,
                schedule,
                settings.warmup_epochs * steps,
            )
        return schedule
    return rate


@keras.saving.register_keras_serializable(package="keras_bdl_papers")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise to the start of a schedule, and then this schedule.

    Args:
        initial_learning_rate: Learning rate of the first step.
        schedule: The schedule.
        warmup_steps: Number of steps of the rise.
    """

    def __init__(self, initial_learning_rate, schedule, warmup_steps):
        super().__init__()
        self.initial_learning_rate = initial_learning_rate
        if isinstance(schedule, dict):
            schedule = keras.saving.deserialize_keras_object(schedule)
        self.schedule = schedule
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        """Returns the learning rate at a step."""
        first = self.initial_learning_rate
        part = keras.ops.cast(step, "float32") / self.warmup_steps
        rising = first + part * (self.schedule(0) - first)
        return keras.ops.where(part < 1.0, rising, self.schedule(step))

    def get_config(self):
        """Returns the arguments."""
        return {
            "initial_learning_rate": self.initial_learning_rate,
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "warmup_steps": self.warmup_steps,
        }
