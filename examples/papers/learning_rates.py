"""How the learning rate goes along a training."""

import keras

import keras_bdl as bdl

# Of the learning rate, at the end of a linear schedule.
LAST_PART = 0.01


def of(settings, steps):
    """Returns a learning rate, or a schedule.

    By its settings: `"schedule": "linear"` is constant for the first half,
    then falls to a hundredth, over `schedule_epochs` if that is not all; with
    `swa_learning_rate` it goes in the same way to that one before
    `start_epoch`; `"cosine"` falls to zero; with
    `milestones` it is multiplied by `learning_rate_factor` after each of these
    epochs, with `learning_rate_decay` after every epoch; with
    `warmup_learning_rate` it rises from there for `warmup_epochs`.

    Args:
        settings: The settings.
        steps: Steps of an epoch.
    """
    rate = settings["learning_rate"]
    if settings.get("schedule") == "linear":
        epochs = settings.get("schedule_epochs", settings["epochs"])
        all_steps = epochs * steps
        if not all_steps:  # nothing is trained
            return rate
        return bdl.schedules.SWASchedule(
            rate, LAST_PART * rate, swa_start_step=all_steps
        )
    if "swa_learning_rate" in settings:
        final, start = settings["swa_learning_rate"], settings["start_epoch"]
        if not start:
            return final
        return bdl.schedules.SWASchedule(
            rate, final, swa_start_step=start * steps
        )
    if settings.get("schedule") == "cosine":
        all_steps = settings["epochs"] * steps
        return keras.optimizers.schedules.CosineDecay(rate, all_steps)
    if settings.get("learning_rate_decay", 1.0) != 1.0:
        return keras.optimizers.schedules.ExponentialDecay(
            rate, steps, settings["learning_rate_decay"], staircase=True
        )
    if "milestones" in settings:
        factor = settings["learning_rate_factor"]
        milestones = settings["milestones"]
        schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
            [milestone * steps - 1 for milestone in milestones],
            [rate * factor**k for k in range(len(milestones) + 1)],
        )
        if "warmup_learning_rate" in settings:
            return WarmUp(
                settings["warmup_learning_rate"],
                schedule,
                settings["warmup_epochs"] * steps,
            )
        return schedule
    return rate


@keras.saving.register_keras_serializable(package="keras_bdl_papers")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Rises to the begin of another schedule, which it then follows.

    Args:
        initial_learning_rate: Where it starts.
        schedule: The other one.
        warmup_steps: For so many steps.
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
