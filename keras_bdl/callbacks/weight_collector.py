"""Collecting the weights that training visits."""

import numbers
import warnings

import keras
import numpy as np

from keras_bdl.callbacks.stateful_callback import StatefulCallback
from keras_bdl.posteriors.structure import Structure


class WeightCollector(StatefulCallback):
    """Base of callbacks that average trainable weights during training.

    Training itself is not changed. The weights before training do not count.
    Collecting goes on over several calls of `fit`; a new run, or another
    model, needs a new callback.

    Attributes:
        num_collected: How often the weights were collected.

    Args:
        start_epoch: First epoch, counted from 0, that is collected.
        every: Epochs or steps between two collections. Defaults to `1`.
        unit: `"epoch"`, collect when an epoch ends, or `"step"`, after
            updates of the weights, counted from the begin of `start_epoch`.
            With `compile(steps_per_execution=k)` Keras shows the weights
            only after `k` steps: the next ones that it shows are collected.
            Defaults to `"epoch"`.
    """

    # Arguments that a state must share with the callback that takes it.
    _settings = ("start_epoch", "every", "unit")
    # How many collections make a posterior.
    _needed = 1

    def __init__(self, start_epoch: int, every: int = 1, unit: str = "epoch"):
        super().__init__()
        self.start_epoch = check_integer("start_epoch", start_epoch, 0)
        self.every = check_integer("every", every, 1)
        if unit not in ("epoch", "step"):
            raise ValueError(
                f'`unit` must be "epoch" or "step". Received: unit={unit!r}'
            )
        self.unit = unit
        self.num_collected = 0
        self._epochs_run = 0
        self._next_step = None
        self._first_possible_batch = 0
        self._goes_on = False  # whether the next `fit` is one resumed
        self._structure = None
        self._dtype = "float32"
        self._mean = None

    def on_train_begin(self, logs=None):
        """Refuses a training that would end without a collection."""
        if not self._goes_on:  # steps are counted anew in every `fit`
            self._next_step = None
            self._first_possible_batch = 0
        name = type(self).__name__
        epochs = self.params["epochs"]
        if epochs <= self.start_epoch:
            raise ValueError(
                f"`{name}` would collect nothing: `start_epoch` must be less "
                "than the number of epochs. Train longer or start earlier. "
                f"Received: start_epoch={self.start_epoch}, epochs={epochs}"
            )
        steps = self.model.steps_per_execution
        if self.unit == "step" and self.every < steps:
            raise ValueError(
                f"`{name}` can collect once in `steps_per_execution` steps. "
                "Make `every` at least that. Received: "
                f"every={self.every}, steps_per_execution={steps}"
            )
        self._check_most_collections()
        self.keep_to_one_model()
        self.refuse_frozen_model()

    def on_epoch_begin(self, epoch, logs=None):
        """Finds out when the next step is due."""
        self._goes_on = False
        if self.unit == "epoch" or epoch < self.start_epoch:
            return
        steps = self._steps()
        if self._next_step is None:
            self._next_step = steps + self.every
        self._first_possible_batch = self._next_step - steps - 1

    def on_train_batch_end(self, batch, logs=None):
        """Collects if a step is due, and compares N with the data."""
        self.compare_dataset_size(batch)
        if (
            self.skipping
            or self._next_step is None
            or batch < self._first_possible_batch
        ):
            # The counter lies on the device, and reading it would wait for it.
            return
        steps = self._steps()
        if steps >= self._next_step:
            self._collect()
            passed = (steps - self._next_step) // self.every
            self._next_step += (passed + 1) * self.every
        # Not exact: loss scaling skips steps, accumulation spreads them.
        self._first_possible_batch = batch + self._next_step - steps

    def on_epoch_end(self, epoch, logs=None):
        """Collects if an epoch is due."""
        self._goes_on = False
        self._epochs_run = epoch + 1
        since = epoch - self.start_epoch
        if self.unit == "epoch" and since >= 0 and since % self.every == 0:
            self._collect()

    def get_state(self):
        """Returns all that was collected, for a checkpoint."""
        return {
            "settings": {name: getattr(self, name) for name in self._settings},
            "num_collected": self.num_collected,
            "epochs_run": self._epochs_run,
            "next_step": self._next_step,
            "dtype": self._dtype,
            "structure": self._structure and self._structure.get_state(),
            "mean": _copies(self._mean),
        }

    def check_state(self, state):
        """Refuses a state that was written with other settings."""
        for name in self._settings:
            saved = state.get("settings", {}).get(name)
            if saved != getattr(self, name):
                raise ValueError(
                    f"`{type(self).__name__}` must have the settings with "
                    "which its state was written. Delete the checkpoint "
                    "directory or use the old settings. Received: "
                    f"{name}={getattr(self, name)!r}, in the state "
                    f"{name}={saved!r}"
                )

    def set_state(self, state):
        """Goes on from what `get_state` returned."""
        self.check_state(state)
        self.num_collected = state["num_collected"]
        self._epochs_run = state["epochs_run"]
        self._next_step = state["next_step"]
        self._goes_on = True
        self._first_possible_batch = 0
        self._dtype = state["dtype"]
        structure = state["structure"]
        self._structure = structure and Structure(**structure)
        self._mean = _copies(state["mean"])

    @property
    def posterior(self):
        """The posterior made of what was collected so far."""
        raise NotImplementedError

    def _check_most_collections(self):
        """Refuses, or warns of, a `fit` that is too short for a posterior."""
        most = self._most_collections()
        if most is None:
            return
        name = type(self).__name__
        most += self.num_collected
        received = (
            f"Received: start_epoch={self.start_epoch}, every={self.every}, "
            f"unit={self.unit!r}, epochs={self.params['epochs']}, "
            f"steps={self.params.get('steps')}"
        )
        if not most:
            raise ValueError(
                f"`{name}` would collect nothing: no step falls due. Train "
                f"longer or make `every` smaller. {received}"
            )
        if most < self._needed:
            warnings.warn(
                f"`{name}` needs {self._needed} collections for a posterior "
                f"and will have {most} at most when this `fit` ends. Train "
                f"longer, start earlier or collect more often. {received}",
                stacklevel=3,
            )

    def _most_collections(self):
        """Returns a bound for this `fit`, `None` if it cannot be known.

        A bound, since only `fit` knows at which epoch it begins.
        """
        epochs = self.params["epochs"]
        if self.unit == "epoch":
            return len(range(self.start_epoch, epochs, self.every))
        steps = self.params.get("steps")
        if steps is None:
            return None
        return (epochs - self.start_epoch) * steps // self.every

    def _collect(self):
        """Takes the weights into the running mean, in float64."""
        variables = self.model.trainable_variables
        if self._structure is None:
            self._structure = Structure.of(variables)
            self._mean = self._zeros()
            if any(v.dtype == "float64" for v in variables):
                self._dtype = "float64"
        self._structure.check(variables)
        self.num_collected += 1
        n = self.num_collected
        for i, variable in enumerate(variables):
            before = variable.numpy() - self._mean[i]
            self._mean[i] += before / n
            self._add(i, before, before * ((n - 1) / n))

    def _add(self, index, before, after):
        """Takes in deviations from the mean without and with the weight."""

    def _moments(self, moments):
        """Returns float64 moments in the precision of a posterior."""
        return [m.astype(self._dtype) for m in moments]

    def _zeros(self):
        return [np.zeros(shape) for shape in self._structure.shapes]

    def _steps(self):
        return int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))

    def _check_collected(self):
        at_least = self._needed
        if self.num_collected >= at_least:
            return
        raise RuntimeError(
            f"`{type(self).__name__}` needs the weights of at least "
            f"{at_least} collection{'s' * (at_least > 1)}. Train longer, "
            "start earlier or collect more often. Received: "
            f"num_collected={self.num_collected} after {self._epochs_run} "
            f"epochs, with start_epoch={self.start_epoch}, "
            f"every={self.every}, unit={self.unit!r}"
        )


def check_integer(name, value, at_least):
    """Returns the value, or raises the error of an argument."""
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Real)
        or not float(value).is_integer()
        or value < at_least
    ):
        raise ValueError(
            f"`{name}` must be an integer of at least {at_least}. "
            f"Received: {name}={value!r}"
        )
    return int(value)


def _copies(arrays):
    """Copies arrays that are about to change, or belong to someone else."""
    return None if arrays is None else [np.array(a) for a in arrays]
