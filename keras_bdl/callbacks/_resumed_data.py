"""The data of a resumed run: batches to skip, and a check of their order."""

import warnings
from typing import Any

import keras

from keras_bdl import _keras

_ADVICE = (
    "The resumed run is as good as a run without interruption, but not equal "
    "to it. For the same order, write `epochs = keras_bdl.datasets."
    "EpochCounter()`, train on `epochs.batches(data, batch_size, seed=...)` "
    "and pass `epochs` to `fit` as a callback."
)


class TrainFunction:
    """Base of objects that stand in for a model's `train_function`."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._train_function = model.train_function
        model.train_function = self

    def undo(self) -> None:
        """Restores the model's own `train_function`."""
        if self._model.train_function is self:
            self._model.train_function = self._train_function


class SkippedSteps(TrainFunction):
    """Replaces a model's `train_function` to skip steps of a killed run.

    The first step of a resumed epoch runs, because Keras builds some objects in
    that step. `Checkpoint` then restores the saved state. The next steps only
    read their batches.
    """

    skips_steps = True  # `FitCallback` leaves such steps out

    def __init__(
        self, model: keras.Model, unseen_by_epoch: int, steps: bool
    ) -> None:
        super().__init__(model)
        self._ahead = unseen_by_epoch
        self._steps = steps
        self._logs = None

    def __call__(self, iterator: Any) -> Any:
        """Reads the batches of one execution from `iterator`."""
        for _ in range(self._ahead):
            if next(iterator, None) is None:
                raise ValueError(
                    "`skip_seen_data=True` needs endless data. The given data "
                    "end before the step of the checkpoint. Repeat the data "
                    "with `dataset.repeat()`, or use `skip_seen_data=False`."
                )
        self._ahead = 0
        if not self._steps:
            self.undo()
            return self._train_function(iterator)
        if self._logs is None:
            self._logs = self._train_function(iterator)
        else:
            next(iterator)  # its `StopIteration` ends the epoch in Keras
            for _ in range(self._model.steps_per_execution - 1):
                # An execution at the end of an epoch may be shorter.
                if next(iterator, None) is None:
                    break
        return self._logs


def checked_steps_per_epoch(params: dict) -> int:
    """Returns `steps_per_epoch`, or raises an error if it was not given."""
    if params["steps"] is None:
        raise ValueError(
            "`skip_seen_data=True` needs `fit(steps_per_epoch=...)`. "
            "Received: steps_per_epoch=None"
        )
    return params["steps"]


class OrderCheck(TrainFunction):
    """Replaces a model's `train_function`, to look at the data of `fit`.

    Keras passes the data to no callback. The first step warns if a new process
    would read the data in another order. The check then removes itself.
    """

    def __init__(
        self, model: keras.Model, params: dict[str, Any], in_one_pass: bool
    ) -> None:
        super().__init__(model)
        self._params = params
        self._in_one_pass = in_one_pass
        self._done = False

    def __call__(self, iterator: Any) -> Any:
        """Checks the data before the first step, and runs the step."""
        if not self._done:
            self._done = True
            self._check(_keras.dataset_of_iterator(iterator))
        self.undo()
        return self._train_function(iterator)

    def _check(self, dataset: Any) -> None:
        if dataset is None:
            return
        known = self._params.get("epoch_counters", [])
        reason = _reason(dataset, known, self._in_one_pass, cached=False)
        if reason is not None:
            warnings.warn(
                f"`Checkpoint` cannot resume this run exactly: {reason}. "
                f"{_ADVICE}",
                stacklevel=4,
            )


def _reason(dataset: Any, known: Any, in_one_pass: Any, cached: Any) -> Any:
    """Returns why a new process would read other batches, or `None`."""
    counter = getattr(dataset, "epoch_counter", None)
    if counter is not None and not any(one is counter for one in known):
        return (
            "the data have an `EpochCounter` that is not among the callbacks "
            "of `fit`, so it counts from 0 in every process"
        )
    shuffle = _keras.shuffle_of_dataset(dataset)
    if shuffle is not None:
        changes, has_seed = shuffle
        if not has_seed:
            return "`shuffle` of the `tf.data.Dataset` has no seed"
        if changes and not cached and not in_one_pass:
            return (
                "`shuffle` of the `tf.data.Dataset` begins with its first "
                "order again in a new process"
            )
    file = _keras.file_of_cache(dataset)
    if file:
        return None  # the file has the order
    # A cache in memory repeats the first order, which has a seed.
    cached = cached or file is not None
    found = (
        _reason(one, known, in_one_pass, cached)
        for one in _keras.inputs_of_step(dataset)
    )
    return next(filter(None, found), None)
