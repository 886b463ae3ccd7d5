"""Checks that a subclass's own steps do what `compile` was asked for.

A subclass may override `train_step`, `test_step`, `predict_step`,
`compute_loss` or `make_train_function`, and leave out the methods of
`keras_bdl.Model`. Then the arguments of `compile` would have no effect, or the
loss would have no KL term.
"""

import functools

import keras

from keras_bdl._data._dataset_size import dataset_sizes
from keras_bdl._inner_optimizer import inner_optimizer
from keras_bdl._protocols import OwnsTrainStep


class StepRecord:
    """Which methods of `keras_bdl.Model` the steps have called.

    The numbers grow only while a step is traced or runs eagerly.

    Attributes:
        watched: Number of training steps of any kind.
        training: Number of training steps with everything in `compile`.
        drawing: Number of evaluations and predictions with `samples`.
        finished: Number of calls of `finish_step`.
        draws: Number of calls of `finish_draws` with all `train_samples`.
        losses: Number of reads of `model.losses`.
    """

    def __init__(self):
        self.watched = self.training = self.drawing = 0
        self.finished = self.draws = self.losses = 0


def watched_train_step(model, step):
    """Returns a training step that counts examples and checks itself.

    Args:
        model: A `keras_bdl.Model`.
        step: Its `train_step`.
    """

    @functools.wraps(step)
    def train(data):
        record = model.step_record
        before = dict(vars(record))
        record.watched += 1
        if model.example_counter is not None:
            model.example_counter.add(data)
        logs = step(data)
        if record.training == before["training"]:
            _check_train_step(model, before)
        if record.losses == before["losses"]:
            _check_losses(model)
        return logs

    return train


def watched_test_step(model, step):
    """Returns an evaluation step that raises an error if it ignores `samples`.

    Args:
        model: A `keras_bdl.Model`.
        step: Its `test_step`.
    """

    @functools.wraps(step)
    def test(data):
        before = model.step_record.drawing
        logs = step(data)
        if model.samples and model.step_record.drawing == before:
            _check(model, "test_step", [f"samples={model.samples}"])
        return logs

    return test


def watched_predict_function(model, function):
    """Returns a function that raises an error if it ignores `samples`.

    Args:
        model: A `keras_bdl.Model`.
        function: Its `predict_function`.
    """
    before = model.step_record.drawing

    @functools.wraps(function)
    def predict(iterator):
        outputs = function(iterator)
        if model.samples and model.step_record.drawing == before:
            _check(model, "predict_step", [f"samples={model.samples}"])
        return outputs

    return predict


class TrainingFunctionCheck(keras.callbacks.Callback):
    """Raises an error if an own `make_train_function` uses no `train_step`."""

    def on_train_batch_end(self, batch, logs=None):
        """Checks after the first step, which traces the training step."""
        if not self.model.step_record.watched:
            _check(self.model, "make_train_function", _ignored(self.model))


def _check_train_step(model, before):
    """Raises an error if a step of a subclass ignored arguments of `compile`.

    The step may call the step of an objective itself, or average over samples.
    """
    _check(
        model,
        "train_step",
        _ignored(
            model,
            finished=model.step_record.finished > before["finished"],
            averaged=model.step_record.draws > before["draws"],
        ),
    )


def _ignored(model, *, finished=False, averaged=False):
    """Returns the arguments of `compile` that a training step left out."""
    optimizer, ignored = inner_optimizer(model), []
    if model.objective is not None and not finished:
        ignored.append(f"objective={type(model.objective).__name__}")
    if isinstance(optimizer, OwnsTrainStep) and not finished:
        ignored.append(f"optimizer={type(optimizer).__name__}")
    if model.train_samples > 1 and not averaged:
        ignored.append(f"train_samples={model.train_samples}")
    if model.sample_replicas > 1:
        ignored.append(f"sample_replicas={model.sample_replicas}")
    return ignored


def _check(model, method, ignored):
    if not ignored:
        return
    argument = "force" if method == "make_train_function" else "data"
    raise ValueError(
        f"`{method}` of `{type(model).__name__}` does not call the `{method}` "
        "of `keras_bdl.Model`. Some arguments of `compile` would have no "
        f"effect. Call `super().{method}({argument})`, or leave them out. "
        f"Received: {', '.join(ignored)}"
    )


def _check_losses(model):
    """Raises an error if the loss has no KL term and no prior."""
    sizes = dataset_sizes(model, [])
    objective = getattr(model, "objective", None)
    if not sizes or isinstance(objective, OwnsTrainStep):
        return
    owners = dict.fromkeys(size.owner for size in sizes)
    raise ValueError(
        f"The training step of `{type(model).__name__}` leaves out "
        "`model.losses`, which hold the KL or the prior of "
        f"{', '.join(owners)}. In an own `train_step`, compute the loss with "
        "`self.compute_loss(x, y, y_pred, sample_weight)`. In an own "
        "`compute_loss`, begin with `super().compute_loss(...)`, or add "
        "`sum(self.losses)`. "
        f"Received: model={model.name!r} with a loss without them"
    )
