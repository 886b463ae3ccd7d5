"""The count of the examples that training steps use, while they run.

Before `fit`, N of some data is an estimate: the last batches may be smaller.
"""

import dataclasses
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._backend import outside_of_trace
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._data._dataset_size import ExampleCount
from keras_bdl._data._dataset_size import tell_dataset_size
from keras_bdl.distribute._replicas import variable_copies
from keras_bdl.distribute._workers import first_replica
from keras_bdl.distribute._workers import numbers_of_workers


class ExampleCounter:
    """Counts examples in the training step, and sets N after the first pass.

    The training step adds the sizes of its batches to a variable. At the end of
    the first pass over the data, N becomes the exact number. The step is not
    traced again, because N is a variable, too.
    """

    def __init__(self, model: keras.Model):
        self._strategy = model.distribute_strategy
        with outside_of_trace(), self._strategy.scope():
            # Keras does not track variables of this plain object, so the
            # variable does not become a weight of the model.
            self._seen = keras.Variable(
                np.zeros(2, "int64"),  # examples and steps
                dtype="int64",
                trainable=False,
                autocast=False,
                aggregation="sum",
                synchronization="on_read",
                name="seen",
            )
        self._counting = False
        self._estimate: ExampleCount | None = None
        self._examples = 0  # the number that N is set to
        self._of_fit: Any = None
        self._warned_of_endless_data = False
        self._last: tuple | None = None  # data, estimate and exact number

    def add(self, data: Any) -> None:
        """Adds a batch, within the training step and on each replica."""
        arrays = [one for one in keras.tree.flatten(data) if _rank(one)]
        if not arrays:  # an own training step may read any data
            return
        size = ops.shape(arrays[0])[0]
        self._seen.assign_add(ops.cast(ops.stack([size, 1]), "int64"))

    def begin(
        self,
        model: keras.Model,
        sizes: Sequence[DatasetSize],
        count: ExampleCount | None,
        fit_arguments: dict[str, Any],
    ) -> None:
        """Sets N before a training, for the `DatasetSize` of every owner."""
        x = fit_arguments["x"]
        start = count
        if count is not None and not count.exact and self._last is not None:
            data, estimate, examples = self._last
            if estimate == count.examples:
                # The best guess, and certain if the data are the same object.
                exact = data() is x
                start = dataclasses.replace(
                    count, examples=examples, exact=exact
                )
        counted = any(size.given is None for size in sizes)
        self._of_fit = model, sizes, x, fit_arguments["steps_per_epoch"]
        self._estimate = None if start is None or start.exact else count
        self._counting = self._estimate is not None
        self._examples = 0 if start is None else start.examples
        if self._estimate is not None:
            self._set(0, 0)
        tell_dataset_size(model, sizes, start, x)
        if self._estimate is not None and counted:
            self._warn_of_estimate(self._estimate)

    def end_epoch(self) -> None:
        """Sets N to the exact number if the first pass over the data ended."""
        estimate = self._estimate
        if not self._counting or estimate is None:
            return
        model, _, x, steps_per_epoch = self._of_fit
        seen, steps = self._totals()
        stopped = estimate.batches is None and model.stop_training
        if steps and estimate.is_settled_by(steps) and not stopped:
            self._counting = False
            examples = estimate.corrected(seen, steps)
            self._last = weakref.ref(x), estimate.examples, examples
            guess = estimate.endless or estimate.repeated
            self._set_exact(examples, guess)
        elif steps_per_epoch is None:
            self._set(0, 0)  # Keras begins the pass again

    def _warn_of_estimate(self, count: ExampleCount) -> None:
        if count.endless and not self._warned_of_endless_data:
            self._warned_of_endless_data = True
            warnings.warn(
                "The data has no end, so the size of the training set is taken "
                "to be batch size x `steps_per_epoch`. Give `dataset_size` if "
                "an epoch is not one pass over the training set. "
                f"Received: data of {count.examples} examples per epoch",
                stacklevel=4,
            )
        elif count.repeated and not count.endless:
            warnings.warn(
                "The data repeat examples, and N should be the number of "
                "different examples, which `fit` cannot find in this pipeline. "
                "Leave out `.repeat()`, or give `dataset_size`. "
                f"Received: data of {count.examples} examples per pass",
                stacklevel=4,
            )

    def _set_exact(self, examples: int, guess: bool) -> None:
        model, sizes, x, _ = self._of_fit
        before, self._examples = self._examples, examples
        exact = ExampleCount(examples, exact=not guess)
        tell_dataset_size(model, sizes, exact, x)
        if before != examples and any(size.given is None for size in sizes):
            warnings.warn(
                f"The first pass over the data has {examples} training "
                f"examples, where `fit` had estimated {before}. N is "
                f"{examples} from here on. To use this number from the first "
                f"step on, write `dataset_size={examples}`. "
                f"Received: x={type(x).__name__}",
                stacklevel=4,
            )

    def end(self) -> None:
        """Forgets the data of a training that has ended."""
        self._of_fit = None
        self._counting = False

    def get_state(self) -> dict[str, int]:
        """Returns the count so far, for a run that resumes later."""
        if self._estimate is None:
            return {}
        seen, steps = self._totals()
        return {
            "estimate": self._estimate.examples,
            "examples": self._examples,
            "counting": int(self._counting),
            "seen": seen,
            "steps": steps,
        }

    def set_state(self, state: dict[str, int]) -> None:
        """Continues a count, if the data have the same estimate as then."""
        estimate = self._estimate
        if estimate is None or state.get("estimate") != estimate.examples:
            return
        self._counting = bool(state["counting"])
        self._set(int(state["seen"]), int(state["steps"]))
        model, sizes, x, _ = self._of_fit
        self._examples = int(state["examples"])
        known = ExampleCount(self._examples, exact=False)
        tell_dataset_size(model, sizes, known, x)
        if not self._counting:
            self._last = weakref.ref(x), estimate.examples, self._examples

    def _totals(self) -> tuple[int, int]:
        """Returns the numbers of examples and of steps of all replicas."""
        copies = [copy.numpy() for copy in variable_copies(self._seen)]
        ours = np.sum(copies, axis=0).tolist()
        seen, steps = np.sum(numbers_of_workers(self._strategy, ours), axis=0)
        return int(seen), int(steps) // self._strategy.num_replicas_in_sync

    def _set(self, seen: int, steps: int) -> None:
        replicas = self._strategy.num_replicas_in_sync
        value = [seen, steps * replicas]
        for index, copy in enumerate(variable_copies(self._seen)):
            first = index + first_replica(self._strategy) == 0
            copy.assign(value if first else [0, 0])


class CountedEpochs(keras.callbacks.Callback):
    """Tells the counter of a model that an epoch has ended.

    The callback comes first, so that all others find the exact N.
    """

    # Keras may run the hooks of steps asynchronously: there are none.
    async_safe = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Sets N if the first pass over the data has ended."""
        self.model.example_counter.end_epoch()


def _rank(one: Any) -> int | None:
    """Returns the number of axes; `None` if unknown."""
    shape = getattr(one, "shape", ())
    return shape.rank if hasattr(shape, "rank") else len(shape)
