"""The base class of callbacks that collect trainable weights."""

import math
import warnings
from typing import Any

import keras
import numpy as np

from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._inherited_arguments import InheritedArguments
from keras_bdl._keras import batches_of_step
from keras_bdl.callbacks._collecting_callback import CollectingCallback
from keras_bdl.posteriors._covered_weights import Structure
from keras_bdl.posteriors._posterior import Posterior

# Number of weights whose moments change at a time. Their copies in float64 then
# stay in the cache of the processor.
_PART = 2**14


class WeightCollector(InheritedArguments, CollectingCallback):
    """Base of callbacks that average the trainable weights during training.

    Training itself does not change. The callback does not collect the weights
    before training. A second `fit` adds to the weights collected in the first.
    Use a new callback for a new run or another model.

    Attributes:
        num_collected: Number of collections so far.

    Args:
        start_epoch: First epoch, counted from 0, in which weights are
            collected.
        every: Number of epochs or steps between two collections. Defaults to
            `1`.
        unit: `"epoch"` collects at the end of epochs. `"step"` collects after
            updates of the weights, counted from the beginning of
            `start_epoch`. With `compile(steps_per_execution=k)`, Keras calls
            the callback only once in `k` steps. The callback then collects at
            the first call after a step is due. Defaults to `"epoch"`.
    """

    # A state fits only a callback with the same values of these arguments.
    _settings: tuple[str, ...] = ("start_epoch", "every", "unit")

    def __init__(
        self, start_epoch: int, *, every: int = 1, unit: str = "epoch"
    ):
        super().__init__()
        self.start_epoch = check_count("start_epoch", start_epoch, at_least=0)
        self.every = check_count("every", every)
        self.unit = check_choice("unit", unit, ("epoch", "step"))
        self.num_collected = 0
        self._epochs_run = 0
        self._next_step = None
        self._first_possible_batch = 0
        self._goes_on = False  # a state was restored, and no epoch has begun
        self._structure: Any = None
        self._dtype = "float32"
        self._mean = None

    @property
    def _needed(self) -> int:
        """The number of collections that a posterior needs."""
        return 1

    def on_train_begin(self, logs=None):
        """Raises an error if training would end without a collection."""
        if not self._goes_on:  # every `fit` counts steps from 0
            self._next_step = None
            self._first_possible_batch = 0
        name = type(self).__name__
        epochs = self.params["epochs"]
        if epochs <= self.start_epoch:
            raise ValueError(
                f"`{name}` would collect nothing. `start_epoch` must be less "
                "than the number of epochs. Train longer or start earlier. "
                f"Received: start_epoch={self.start_epoch}, epochs={epochs}"
            )
        steps = self.model.steps_per_execution
        if self.unit == "step" and self.every < steps:
            raise ValueError(
                f"`{name}` can collect at most once in `steps_per_execution` "
                "steps. Raise `every` to at least `steps_per_execution`. "
                "Received: "
                f"every={self.every}, steps_per_execution={steps}"
            )
        self._check_most_collections()
        self.check_model(is_first=self._mean is None)

    def on_epoch_begin(self, epoch, logs=None):
        """Computes when the next step is due."""
        self._goes_on = False
        if self.unit == "epoch" or epoch < self.start_epoch:
            return
        steps = self._steps()
        if self._next_step is None:
            self._next_step = steps + self.every
        self._first_possible_batch = self._next_step - steps - 1

    def on_train_batch_end(self, batch, logs=None):
        """Collects the weights if the settings select this step. Compares N."""
        self.compare_dataset_size(batch)
        if (
            self.skipping
            or self._next_step is None
            or batch < self._first_possible_batch
        ):
            # Reading the step counter would wait for the device.
            return
        steps = self._steps()
        if steps >= self._next_step:
            self._collect()
            passed = (steps - self._next_step) // self.every
            self._next_step += (passed + 1) * self.every
        # The step may be due later: loss scaling skips updates, and gradient
        # accumulation uses several batches for one update.
        self._first_possible_batch = batch + self._next_step - steps

    def on_epoch_end(self, epoch, logs=None):
        """Collects the weights if the settings select this epoch."""
        self._goes_on = False
        self._epochs_run = epoch + 1
        since = epoch - self.start_epoch
        if self.unit == "epoch" and since >= 0 and since % self.every == 0:
            self._collect()

    def get_state(self) -> dict[str, Any]:
        """Returns everything collected, for a checkpoint."""
        return {
            "settings": {name: getattr(self, name) for name in self._settings},
            "num_collected": self.num_collected,
            "epochs_run": self._epochs_run,
            "next_step": self._next_step,
            "dtype": self._dtype,
            "structure": self._structure and self._structure.get_state(),
            "mean": _copies(self._mean),
            **self.state_of_training(),
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raises an error for a state that was written with other settings."""
        for name in self._settings:
            saved = state.get("settings", {}).get(name)
            if saved != getattr(self, name):
                raise ValueError(
                    f"`{type(self).__name__}` must have the settings of its "
                    "saved state. Delete the checkpoint directory or use the "
                    f"old settings. Received: {name}={getattr(self, name)!r}, "
                    f"in the state {name}={saved!r}"
                )

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state that `get_state` returned."""
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
        self.set_state_of_training(state)

    @property
    def posterior(self) -> Posterior:
        """The posterior of the weights collected so far."""
        raise NotImplementedError

    def _check_most_collections(self):
        """Raises or warns if `fit` is too short for a posterior."""
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
                f"`{name}` would collect nothing because no step falls due in "
                "this `fit`. "
                f"Train longer or lower `every`. {received}"
            )
        if most < self._needed:
            warnings.warn(
                f"`{name}` needs {self._needed} collections for a posterior "
                f"and will have {most} at most at the end of this `fit`. Train "
                f"longer, start earlier or collect more often. {received}",
                stacklevel=3,
            )

    def _most_collections(self):
        """Returns the largest number of collections in this `fit`, or `None`.

        `None` stands for unknown. The real number may be smaller, because
        callbacks do not receive the `initial_epoch` of `fit`.
        """
        epochs = self.params["epochs"]
        if self.unit == "epoch":
            return len(range(self.start_epoch, epochs, self.every))
        steps = self.params.get("steps")
        if steps is None:
            return None
        batches = self.every * batches_of_step(self.model)
        return (epochs - self.start_epoch) * steps // batches

    def _collect(self):
        """Adds the weights to the running mean, in float64."""
        variables = self.model.trainable_variables
        self.check_weights(is_first=self._mean is None)
        if self._mean is None:
            self._structure = Structure.of(variables)
            self._mean = self._zeros()
            if any(v.dtype == "float64" for v in variables):
                self._dtype = "float64"
        self._structure.check(variables)
        self.num_collected += 1
        n = self.num_collected
        for i, variable in enumerate(variables):
            value = variable.numpy().reshape(-1)
            mean = self._mean[i].reshape(-1)
            for start in range(0, mean.size, _PART):
                part = slice(start, start + _PART)
                before = value[part] - mean[part]
                mean[part] += before / n
                self._add(i, part, before, before * ((n - 1) / n))

    def needed_memory(self) -> tuple[str, int, str] | None:
        """Returns the size of everything that is collected."""
        weights = sum(
            math.prod(v.shape) for v in self.model.trainable_variables
        )
        return (
            f"What `{type(self).__name__}` collects of {weights:,} weights",
            weights * self._bytes_of_weight(),
            self.memory_advice,
        )

    memory_advice = "Freeze layers with `trainable=False`."

    def _bytes_of_weight(self):
        return np.dtype("float64").itemsize  # the mean

    def _add(self, index, part, before, after):
        """Uses the deviations of weights from the old and the new mean.

        The base class does nothing.

        Args:
            index: Position of the variable.
            part: Slice of the flat variable, with at most `_PART` weights.
            before: The deviations from the old mean, in float64.
            after: The deviations from the new mean.
        """

    def _moments(self, moments):
        """Converts float64 moments to the dtype of the posterior."""
        return [m.astype(self._dtype) for m in moments]

    def _zeros(self, dtype="float64"):
        return [np.zeros(shape, dtype) for shape in self._structure.shapes]

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


def _copies(arrays):
    """Returns copies, because `_collect` changes its arrays in place."""
    return None if arrays is None else [np.array(a) for a in arrays]
