"""The checks of `compile` and `fit`: what trains wrongly raises or warns.

In the order of this file: the arguments, the steps of a subclass, the metrics,
outputs that look like logits, a diverging loss.
"""

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl import likelihoods
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_number
from keras_bdl._backend import in_several_workers
from keras_bdl._data._dataset_size import OBSERVATIONS
from keras_bdl._data._dataset_size import dataset_sizes
from keras_bdl._keras import inner_optimizer
from keras_bdl._models._strategy_check import check_seeds
from keras_bdl._protocols import DrawsFunctions
from keras_bdl._protocols import OwnsTrainStep
from keras_bdl._protocols import TargetsPosterior
from keras_bdl.likelihoods._loss_as_likelihood import loss_function
from keras_bdl.likelihoods._loss_as_likelihood import losses_and_outputs
from keras_bdl.likelihoods._loss_as_likelihood import unguarded
from keras_bdl.metrics._classification import ClassificationMetric
from keras_bdl.posteriors._held_posterior import posterior_owner
from keras_bdl.prediction._outputs import Likelihood
from keras_bdl.prediction._outputs import per_output

_CROSS_ENTROPIES = {
    "binary_crossentropy": "binary",
    "categorical_crossentropy": "classification",
    "sparse_categorical_crossentropy": "classification",
}
# These metrics compare the classes of an example. Logits and probabilities
# order the classes alike.
_OF_SEVERAL_CLASSES = (
    "categorical_accuracy",
    "categorical_hinge",
    "sparse_categorical_accuracy",
    "sparse_top_k_categorical_accuracy",
    "top_k_categorical_accuracy",
)
_NEEDED = {
    ("classification", True): "`keras.metrics.SparseCategoricalAccuracy()`, a "
    "cross-entropy of classes with `from_logits=True`,",
    ("classification", False): "`keras.metrics.SparseCategoricalAccuracy()`, "
    "a cross-entropy of classes",
    ("binary", True): "`keras.metrics.BinaryAccuracy(threshold=0.0)`, `AUC` "
    "or `BinaryCrossentropy` with `from_logits=True`,",
    ("binary", False): "`keras.metrics.BinaryAccuracy()`, `AUC()`, "
    "`BinaryCrossentropy()`",
}
# Half precision rounds probabilities: 2^-6 is the spacing of bfloat16 near 2.
_TOLERANCE = 2.0**-6
# A loss that has grown by this factor never recovers.
_MOST_GROWTH = 1e4


def check_compile_arguments(
    objective: Any,
    *,
    train_samples: int,
    samples: int,
    observations: str | None,
) -> None:
    """Raises an error that names a wrong argument of `compile`."""
    check_number("train_samples", train_samples, at_least=1, integer=True)
    check_number("samples", samples, at_least=0, integer=True)
    check_choice("observations", observations, (None, *OBSERVATIONS))
    # A class such as `MAP`, without `()`, has the methods, too.
    if isinstance(objective, type) or not (
        objective is None
        or isinstance(objective, (OwnsTrainStep, DrawsFunctions))
    ):
        raise ValueError(
            "`objective` must be an object of `keras_bdl.objectives`, or have "
            "the method of `keras_bdl._protocols.OwnsTrainStep`. "
            f"Received: objective={objective!r}"
        )


def check_fit(model: keras.Model, fit_arguments: dict[str, Any]) -> None:
    """Raises an error for arguments of `fit` that users should not combine."""
    if in_several_workers(model.distribute_strategy):
        check_seeds(model, fit_arguments)
    callbacks = fit_arguments["callbacks"]
    callbacks = getattr(callbacks, "callbacks", callbacks)  # `CallbackList`
    for callback in keras.tree.flatten(callbacks):
        if (
            isinstance(callback, keras.callbacks.EarlyStopping)
            and callback.restore_best_weights
            and not getattr(callback, "restores_posterior", False)
        ):
            _check_has_no_posterior(model, callback)


def _check_has_no_posterior(model: keras.Model, callback: Any) -> None:
    owner = posterior_owner(model)
    if owner is not None:
        raise ValueError(
            "`keras.callbacks.EarlyStopping(restore_best_weights=True)` "
            "restores the weights alone. The standard deviations of "
            f"`{type(owner).__name__}` would keep their values of the "
            "last epoch. Use `keras_bdl.callbacks.EarlyStopping`, which "
            "restores both. "
            f"Received: callbacks=[..., {type(callback).__name__}(...)]"
        )


def check_optimizer(owner: str, model: keras.Model) -> None:
    """Raises an error if the optimizer would change the objective `owner`."""
    optimizer = inner_optimizer(model)
    name = type(optimizer).__name__
    if isinstance(optimizer, TargetsPosterior):
        raise ValueError(
            f"`{owner}` needs an optimizer that only minimises, such as "
            f'"adam", but `{name}` finds a posterior itself. Leave out one of '
            f"the two. Received: optimizer={name}"
        )
    changing = [
        option
        for option in ("weight_decay", "use_ema")
        if getattr(optimizer, option, None)
    ]
    if changing:
        raise ValueError(
            f"`{owner}` has a `prior`, and its variances belong to the weights "
            f"of the optimizer. Leave {changing} out of the optimizer. "
            f"Received: optimizer={name} with {changing}"
        )


class StepRecord:
    """Which methods of `keras_bdl.Model` the steps have called, and how often.

    A subclass may override `train_step`, `test_step`, `predict_step`,
    `compute_loss` or `make_train_function`, and leave out the methods of
    `keras_bdl.Model`. Then the arguments of `compile` would have no effect, or
    the loss would have no KL term. The numbers grow only while a step is traced
    or runs eagerly.
    """

    def __init__(self) -> None:
        self.watched = 0  # training steps of any kind
        self.training = 0  # training steps with everything in `compile`
        self.drawing = 0  # evaluations and predictions with `samples`
        self.finished = 0  # calls of `finish_step`
        self.draws = 0  # calls of `finish_draws` with all `train_samples`
        self.losses = 0  # reads of `model.losses`


def watched_train_step(model: Any, step: Callable) -> Callable:
    """Returns a training step that counts examples and checks itself."""

    @functools.wraps(step)
    def train(data: Any) -> dict:
        record = model.step_record
        before = dict(vars(record))
        record.watched += 1
        if model.example_counter is not None:
            model.example_counter.add(data)
        logs = step(data)
        if record.training == before["training"]:
            # The step may call the step of an objective itself, or average
            # over samples.
            finished = record.finished > before["finished"]
            averaged = record.draws > before["draws"]
            ignored = _ignored(model, finished=finished, averaged=averaged)
            _check_calls(model, "train_step", ignored)
        if record.losses == before["losses"]:
            _check_losses(model)
        return logs

    return train


def watched_test_step(model: Any, step: Callable) -> Callable:
    """Returns an evaluation step that raises if it ignores `samples`."""

    @functools.wraps(step)
    def test(data: Any) -> dict:
        before = model.step_record.drawing
        logs = step(data)
        if model.samples and model.step_record.drawing == before:
            _check_calls(model, "test_step", [f"samples={model.samples}"])
        return logs

    return test


def watched_predict_function(model: Any, function: Callable) -> Callable:
    """Returns a predict function that raises if it ignores `samples`."""
    before = model.step_record.drawing

    @functools.wraps(function)
    def predict(iterator: Any) -> Any:
        outputs = function(iterator)
        if model.samples and model.step_record.drawing == before:
            _check_calls(model, "predict_step", [f"samples={model.samples}"])
        return outputs

    return predict


class TrainingFunctionCheck(keras.callbacks.Callback):
    """Raises an error if an own `make_train_function` uses no `train_step`."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Checks after the first step, which traces the training step."""
        if not self.model.step_record.watched:
            _check_calls(
                self.model, "make_train_function", _ignored(self.model)
            )


def _ignored(
    model: Any, *, finished: bool = False, averaged: bool = False
) -> list[str]:
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


def _check_calls(model: Any, method: str, ignored: list[str]) -> None:
    if not ignored:
        return
    argument = "force" if method == "make_train_function" else "data"
    raise ValueError(
        f"`{method}` of `{type(model).__name__}` does not call the `{method}` "
        "of `keras_bdl.Model`. Some arguments of `compile` would have no "
        f"effect. Call `super().{method}({argument})`, or leave them out. "
        f"Received: {', '.join(ignored)}"
    )


def _check_losses(model: Any) -> None:
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


def not_in_training(model: Any, layer: Any) -> str:
    """Returns the message for layers that a training step calls wrongly."""
    return (
        "A training step must call variational layers with `training=True`, "
        "so that they draw their weights. Give the `call` of your model the "
        "argument `training=None`: Keras sets it to `True` in training. "
        f"Received: {type(model).__name__} {model.name!r}, whose layer "
        f"{layer.name!r} was called without `training=True`"
    )


def check_metrics(model: Any, y: Any, y_pred: Any) -> None:
    """Raises an error for a metric that reads an output in a wrong way.

    The compiled loss defines whether the outputs are logits, probabilities, or
    means and standard deviations. A Keras metric that reads the outputs in
    another way returns a wrong number that may look right. The function also
    sets whether metrics of `keras_bdl` take logits.
    """
    compiled = _keras.compile_metrics(model)
    if compiled is None:
        return
    if not compiled.built:
        compiled.build(y, y_pred)
    outputs = _keras.flat_outputs(compiled, y_pred)
    losses = _keras.flat_outputs(compiled, _losses(model, y_pred))
    for metrics in filter(None, _keras.metrics_of_outputs(compiled)):
        for of_output, loss, output in zip(
            metrics, losses, outputs, strict=True
        ):
            for metric in of_output.metrics if of_output else ():
                _check_metric(metric, loss, output)


def _losses(model: Any, y_pred: Any) -> Any:
    """Returns the loss of each output, in the structure of the outputs."""
    losses = keras.tree.flatten(model.loss)
    if len(keras.tree.flatten(y_pred)) > 1:
        names = getattr(model, "output_names", None)
        losses = per_output("loss", model.loss, y_pred, names=names)
    elif len(losses) != 1:  # one output with a sum of losses
        losses = [None]
    return keras.tree.pack_sequence_as(y_pred, losses)


def _check_metric(metric: Any, loss: Any, output: Any) -> None:
    if isinstance(loss, likelihoods.Gaussian) and loss.noise_stddev is None:
        _check_reads_noise(metric)
        return
    likelihood = _likelihood(loss, output)
    if isinstance(metric, ClassificationMetric):
        metric.learn(likelihood)
    elif likelihood is not None and likelihood.task != "regression":
        _check_reads_classes(metric, likelihood)


def _check_reads_noise(metric: Any) -> None:
    reader = _keras.metric_function(metric)
    if not getattr(reader, "reads_noise", False):
        raise ValueError(
            "The network predicts standard deviations after the means, and "
            "this metric compares the targets with both. Use "
            "`keras_bdl.metrics.RootMeanSquaredError`, `MeanAbsoluteError`, "
            "`GaussianLogLikelihood` or another metric of Gaussian outputs. "
            "If a metric of your own splits the output, give it the attribute "
            f"`reads_noise = True`. Received: metric={metric.name!r}"
        )


def _check_reads_classes(metric: Any, likelihood: Likelihood) -> None:
    name, options = _of_keras(metric)
    if name is None or _reads_classes(name, options, likelihood):
        return
    needed = _NEEDED[likelihood.task, likelihood.from_logits]
    kind = "logits" if likelihood.from_logits else "probabilities"
    raise ValueError(
        f"The compiled loss says that the outputs are {kind} of "
        f"task={likelihood.task!r}, and this metric misreads them. Use "
        f"{needed} or a metric of `keras_bdl.metrics`. "
        f"Received: metric={metric.name!r}, of type {type(metric).__name__}"
    )


def _reads_classes(name: str, options: dict, likelihood: Likelihood) -> bool:
    """Returns whether a Keras metric reads a classifier correctly."""
    classes = likelihood.task == "classification"
    logits = likelihood.from_logits
    if name in _CROSS_ENTROPIES:
        of_task = _CROSS_ENTROPIES[name] == likelihood.task
        return of_task and options.get("from_logits", False) == logits
    if name == "AUC":  # applies a sigmoid to logits
        of_task = not (classes and logits)
        return of_task and options["from_logits"] == logits
    if name in _OF_SEVERAL_CLASSES or _compares_classes(name, options):
        return classes
    if name in ("accuracy", "IoU", "MeanIoU"):  # take labels as outputs
        return False
    if name in ("hinge", "squared_hinge"):  # take the score of one class
        return logits and not classes
    if name in ("binary_accuracy", "BinaryIoU") and logits:
        return not classes and options.get("threshold", 0.5) != 0.5
    if name == "kl_divergence":
        return classes and not logits
    return not logits


def _compares_classes(name: str, options: dict) -> bool:
    if name in ("F1Score", "FBetaScore"):
        return options["threshold"] is None
    if name in ("Precision", "Recall"):
        return options["top_k"] is not None
    return options.get("sparse_y_pred") is False  # intersection over union


def _of_keras(metric: Any) -> tuple[str | None, dict]:
    """Returns the name and the arguments of a metric of Keras."""
    if isinstance(metric, keras.metrics.MeanMetricWrapper):
        function = _keras.metric_function(metric)
        name = getattr(function, "__name__", None)
        options = _keras.metric_options(metric)
    else:
        function = type(metric)
        name, options = function.__name__, None
    module = getattr(function, "__module__", None) or ""
    if module.split(".")[0] != "keras":
        return None, {}
    return name, metric.get_config() if options is None else options


def _likelihood(loss: Any, output: Any) -> Likelihood | None:
    """Returns the `Likelihood` of an output, `None` for an unknown loss."""
    if loss_function(loss)[1].get("axis", -1) != -1:
        return None
    likelihood = Likelihood.of_loss(loss)
    one_entry = len(output.shape) < 2 or output.shape[-1] == 1
    if likelihood and likelihood.task == "classification" and one_entry:
        likelihood = dataclasses.replace(likelihood, task="binary")
    return likelihood


class LogitsCheck:
    """Counts outputs outside [0, 1] that the loss takes for probabilities.

    Keras clips such outputs to [0, 1] and trains on, so a forgotten
    `from_logits=True` shows in no error. The training step counts in the graph,
    and a callback reads the count.
    """

    def __init__(self, model: keras.Model):
        self._count: Any = None
        losses = keras.tree.flatten(model.loss)
        if any(map(_expects_probabilities, losses)):
            with model.distribute_strategy.scope():
                # Keras does not track variables of this plain object, so the
                # variable does not become a weight of the model.
                self._count = keras.Variable(
                    0.0,
                    dtype="float32",
                    trainable=False,
                    autocast=False,
                    # Each replica counts alone.
                    synchronization="on_read",
                    aggregation="sum",
                    name="logits_seen",
                )

    def observe(self, model: keras.Model, y_pred: Any) -> None:
        """Counts the outputs of a batch with values outside [0, 1]."""
        compiled = _keras.compile_loss(model)
        if self._count is None or not compiled.built:
            return
        for loss, output in losses_and_outputs(compiled, y_pred):
            if _expects_probabilities(unguarded(loss)):
                below, above = ops.min(output), ops.max(output)
                outside = ops.logical_or(
                    below < -_TOLERANCE, above > 1.0 + _TOLERANCE
                )
                self._count.assign_add(ops.cast(outside, "float32"))

    @property
    def seen(self) -> bool:
        """Whether a batch had such values."""
        return self._count is not None and float(ops.sum(self._count.value)) > 0


def _expects_probabilities(loss: Any) -> bool:
    if loss is None or loss_function(loss)[1].get("axis", -1) != -1:
        return False
    likelihood = Likelihood.of_loss(loss)
    return (
        likelihood is not None
        and likelihood.task != "regression"
        and not likelihood.from_logits
    )


class LogitsWarning(keras.callbacks.Callback):
    """Warns once, after the first batch or an epoch, of a `LogitsCheck`."""

    # Keras may run these hooks asynchronously: no step waits for them.
    async_safe = True

    def __init__(self, check: LogitsCheck):
        super().__init__()
        self._check = check
        self._warned = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Looks at the first batch."""
        if batch == 0:
            self._warn()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Looks at all batches so far."""
        self._warn()

    def _warn(self) -> None:
        if self._warned or not self._check.seen:
            return
        self._warned = True
        warnings.warn(
            "The loss expects probabilities, but the model returns values "
            "outside [0, 1]. If these values are logits, compile with "
            "`from_logits=True`, as in "
            "`keras.losses.SparseCategoricalCrossentropy(from_logits=True)`. "
            "If not, end the model with a softmax or a sigmoid. Received: "
            f"loss={self.model.loss!r}",
            stacklevel=2,
        )


class DivergenceWarning(keras.callbacks.Callback):
    """Warns once, at the end of an epoch, if the loss diverges.

    The loss must stay finite, and below `_MOST_GROWTH` times its value in the
    first steps. If the loss contains a KL, the callback uses `nll` instead:
    annealing raises the KL term during training.
    """

    # Keras may run these hooks asynchronously: no step waits for them.
    async_safe = True

    def on_train_begin(self, logs: Any = None) -> None:
        """Removes the state of an earlier training."""
        self._first: float | None = None
        self._warned, self._epochs = False, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keeps the loss of the first steps."""
        if self._first is None:
            loss = _loss(logs)
            self._first = loss if math.isfinite(loss) else None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Warns if the loss of the epoch is too high."""
        self._epochs += 1
        loss = _loss(logs)
        # At least 1, as the first loss may be near zero.
        first = self._first or 0.0
        most = _MOST_GROWTH * max(abs(first), 1.0)
        small = math.isfinite(loss) and loss < most
        if self._warned or small or self._looks_for_scale():
            return
        self._warned = True
        warnings.warn(
            "The training diverges, so weights and posterior are meaningless. "
            "Make `learning_rate` smaller and train a new model. Received: a "
            f"loss of {loss:.3g} in epoch {epoch + 1}, after {first:.3g} in "
            "the first steps, with optimizer="
            f"{type(inner_optimizer(self.model)).__name__}",
            stacklevel=2,
        )

    def _looks_for_scale(self) -> bool:
        # In the first epoch, loss scaling may skip steps that overflow in half
        # precision.
        scales = keras.optimizers.LossScaleOptimizer
        return self._epochs == 1 and isinstance(self.model.optimizer, scales)


def _loss(logs: Any) -> float:
    """Returns the loss in logs, or 0 if a custom train step returns none."""
    logs = logs or {}
    try:
        return float(logs.get("nll", logs.get("loss")))
    except (TypeError, ValueError):  # `None`, a vector or a text
        return 0.0
