"""The training loop of `keras_bdl.Model` and `keras_bdl.Sequential`.

A training step asks the objective and the optimizer for a step of their own. If
none has one, the step averages the loss over `train_samples` forward passes.
The loss is the evidence bound, and `fit` tells N to all who need the number.
"""

import contextlib
import functools
import inspect
import types
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import ArrayLike
from keras_bdl._backend import first_tensor
from keras_bdl._backend import in_several_workers
from keras_bdl._backend import num_replicas
from keras_bdl._backend import outside_of_trace
from keras_bdl._backend import value_and_grad
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._data._dataset_size import check_mask
from keras_bdl._data._dataset_size import count_of_fit
from keras_bdl._data._dataset_size import dataset_sizes
from keras_bdl._data._dataset_size import guard_loss
from keras_bdl._data._dataset_size import peeked
from keras_bdl._keras import inner_optimizer
from keras_bdl._models import _checks
from keras_bdl._models._example_counter import CountedEpochs
from keras_bdl._models._example_counter import ExampleCounter
from keras_bdl._models._sampled_outputs import average_draws
from keras_bdl._models._sampled_outputs import call_with_draws
from keras_bdl._models._sampled_outputs import likelihoods_of
from keras_bdl._protocols import OwnsTrainStep
from keras_bdl._protocols import OwnsVariables
from keras_bdl.distribute import _replicas
from keras_bdl.distribute import _workers
from keras_bdl.layers._variational import end_annealing
from keras_bdl.layers._variational import variational_layers
from keras_bdl.likelihoods._loss_as_likelihood import labels_are_open
from keras_bdl.posteriors._covered_weights import TrainedWeights
from keras_bdl.posteriors._covered_weights import at_positions


class BayesianTrainer(keras.Model):
    """Adds Bayesian training to `fit`, `evaluate` and `predict`."""

    objective: Any = None
    train_samples = 1
    samples = 0
    sample_replicas = 1
    observations = EXAMPLES
    given_observations: str | None = None
    example_counter: ExampleCounter | None = None
    step_record: Any = None  # a `StepRecord` after `compile`
    _evidence_bound: Any = None  # an `EvidenceBound` after `compile`
    _logits_check: _checks.LogitsCheck
    _prior_versions: dict[str, int]
    # Attributes of `keras.Model`.
    built: bool
    optimizer: Any
    predict_function: Any
    train_function: Any
    distribute_strategy: Any

    @functools.wraps(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Counts the training examples, and trains the model."""
        call = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs)
        given = {k: v for k, v in call.arguments.items() if k != "self"}
        call.apply_defaults()
        every = call.arguments
        _checks.check_fit(self, every)
        sizes = dataset_sizes(self, self._methods())
        first = None
        if isinstance(every["x"], types.GeneratorType) and any(
            size.given is None for size in sizes
        ):
            first, batches = peeked(every["x"])
            given["x"] = every["x"] = batches
        ours: list[keras.callbacks.Callback] = []
        own_function = type(self).make_train_function
        if own_function is not BayesianTrainer.make_train_function:
            ours.append(_checks.TrainingFunctionCheck())
        if sizes:
            counter = self._make_example_counter()
            count = count_of_fit(self, sizes, every, first)
            counter.begin(self, sizes, count, every)
            ours.insert(0, CountedEpochs())
        try:
            with self._with_callbacks(given, ours), self._workers_explained():
                return super().fit(**given)
        except BaseException:
            # After an error, Keras calls no `on_train_end`.
            if end_annealing(self):
                self.train_function = None
            raise
        finally:
            if sizes:
                counter.end()

    @contextlib.contextmanager
    def _with_callbacks(
        self, given: dict[str, Any], ours: list
    ) -> Iterator[None]:
        """Puts callbacks before those of the user, and warnings after them."""
        theirs = given.get("callbacks")
        if not isinstance(theirs, keras.callbacks.CallbackList):
            theirs = [] if theirs is None else keras.tree.flatten(theirs)
            warnings = [
                _checks.DivergenceWarning(),
                _checks.LogitsWarning(self._logits_check),
            ]
            given["callbacks"] = [*ours, *theirs, *warnings]
            yield
            return
        before = list(theirs.callbacks)
        for callback in ours:
            callback.set_model(self)
        theirs.callbacks[:0] = ours
        try:
            yield
        finally:
            theirs.callbacks[:] = before

    def _workers_explained(self) -> contextlib.AbstractContextManager:
        strategy = self.distribute_strategy
        if not in_several_workers(strategy):
            return contextlib.nullcontext()
        return _workers.lost_worker_explained(strategy)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates the model."""
        with self._workers_explained():
            return super().evaluate(*args, **kwargs)

    @functools.wraps(keras.Model.predict)
    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the predictions of the model."""
        with self._workers_explained():
            return super().predict(*args, **kwargs)

    def make_train_function(self, force: bool = False) -> Any:
        """Makes a training step if none exists or the kind of a prior changed.

        Args:
            force: Whether to make a new step in any case. Defaults to `False`.
        """
        if self.built:
            build_optimizer(self)
        for size in dataset_sizes(self, self._methods()):
            size.settle()  # the first pass has shown the number of labels
        self._mend_keras()
        return super().make_train_function(
            self._priors_changed("train") or force
        )

    def make_test_function(self, force: bool = False) -> Any:
        """Makes a test step if none exists or the kind of a prior changed.

        Args:
            force: Whether to make a new step in any case. Defaults to `False`.
        """
        self._mend_keras()
        return super().make_test_function(self._priors_changed("test") or force)

    def make_predict_function(self, force: bool = False) -> Any:
        """Makes the step of a prediction.

        Args:
            force: Whether to make a new step in any case. Defaults to `False`.
        """
        before = self.predict_function
        self._mend_keras()
        super().make_predict_function(force)
        if self.predict_function is not before and self.samples:
            self.predict_function = _checks.watched_predict_function(
                self, self.predict_function
            )
        return self.predict_function

    def _mend_keras(self) -> None:
        # Every training, evaluation and prediction makes its step first.
        strategy = self.distribute_strategy
        if strategy.num_replicas_in_sync > 1 and in_several_workers(strategy):
            _workers.mend_keras()

    def _priors_changed(self, function: str) -> bool:
        """Returns whether the kinds of priors changed since the last trace.

        A trace contains the kind of each prior. Models may share layers, so the
        training of one model may change the priors of another model.
        """
        # A layer that is not built has version 0.
        version = sum(one.prior_version for one in variational_layers(self))
        before = self._prior_versions.get(function, version)
        self._prior_versions[function] = version
        return before != version

    def _make_function(self, step_function: Callable) -> Callable:
        # `==` compares the method and its object.
        if step_function == self.train_step:
            if dataset_sizes(self, self._methods()):
                self._make_example_counter()
            step_function = _checks.watched_train_step(self, step_function)
        elif step_function == self.test_step:
            step_function = _checks.watched_test_step(self, step_function)
        function = super()._make_function(step_function)
        if self.steps_per_execution > 1:
            if _replicas.on_cpus(self.distribute_strategy):
                return _replicas.looping_in_python(self, function)
        return function

    def _make_example_counter(self) -> ExampleCounter:
        if self.example_counter is None:
            self.example_counter = ExampleCounter(self)
        return self.example_counter

    def train_step(self, data: Any) -> dict:
        """Trains on one batch; some Bayesian methods run their own step."""
        if num_replicas() == 1:
            return self._train_on(data)
        data = _replicas.batch_of_group(data, self.sample_replicas)
        with _replicas.statistics_of_examples(self, data):
            return self._train_on(data)

    def _train_on(self, data: Any) -> dict:
        self.step_record.training += 1
        for method in self._methods():
            if isinstance(method, OwnsTrainStep):
                logs = method.bayesian_train_step(self, data)
                if hasattr(method, "trained_weights"):
                    # A user may freeze the model after training.
                    method.trained_weights = TrainedWeights.of(self)
                return logs
        alone, weight = num_replicas() == 1, None
        if not alone:
            weight = _replicas.replica_weight(data)
            alone = weight is None and not _replicas.looks_at_gradients(
                self.optimizer
            )
        if self.train_samples == 1 and alone:
            return super().train_step(data)

        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs, losses = [], []

        def mean_loss() -> Any:
            for _ in range(self.train_samples):
                y_pred = _keras.call_with_training(self, x, training=True)
                outputs.append(y_pred)
                losses.append(
                    _keras.compute_loss(
                        self, x, y, y_pred, sample_weight, training=True
                    )
                )
            return self.optimizer.scale_loss(ops.mean(ops.stack(losses)))

        _, gradients = value_and_grad(mean_loss, self.trainable_variables)
        if not alone:
            gradients = _replicas.for_all_replicas(
                self.optimizer, gradients, weight
            )
        self.optimizer.apply(gradients, self.trainable_variables)
        return self.finish_draws(losses, x, y, outputs, sample_weight)

    def test_step(self, data: Any) -> dict:
        """Evaluates one batch with the posterior mean or with samples."""
        if self.samples == 0:
            return super().test_step(data)
        self.step_record.drawing += 1
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs = call_with_draws(self, self._methods(), x)
        likelihoods = likelihoods_of(self, outputs[0])
        y_pred = average_draws(outputs, likelihoods)
        # An unknown loss may not fit averaged outputs, so the losses are
        # averaged instead.
        judged = outputs if None in likelihoods else [y_pred]
        losses = [
            _keras.compute_loss(
                self, x, y, output, sample_weight, training=False
            )
            for output in judged
        ]
        return self.finish_step(
            ops.mean(ops.stack(losses)), x, y, y_pred, sample_weight
        )

    def predict_step(self, data: Any) -> Any:
        """Predicts one batch with the posterior mean or with samples."""
        if self.samples == 0:
            return super().predict_step(data)
        self.step_record.drawing += 1
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        outputs = call_with_draws(self, self._methods(), x)
        return average_draws(outputs, likelihoods_of(self, outputs[0]))

    def finish_draws(
        self,
        losses: Sequence[ArrayLike],
        x: ArrayLike,
        y: ArrayLike,
        outputs: Sequence[ArrayLike],
        sample_weight: ArrayLike | None = None,
    ) -> dict:
        """Updates the metrics after several samples and returns the logs.

        Args:
            losses: The result of `compute_loss` for each sample.
            x: The inputs.
            y: The targets.
            outputs: The outputs of each sample.
            sample_weight: The weights of the examples. Defaults to `None`.
        """
        self.step_record.draws += len(losses) == self.train_samples
        y_pred = outputs[0]
        if len(outputs) > 1:
            y_pred = average_draws(outputs, likelihoods_of(self, y_pred))
        loss = ops.mean(ops.stack(losses))
        return self.finish_step(loss, x, y, y_pred, sample_weight)

    def finish_step(
        self,
        loss: ArrayLike,
        x: ArrayLike,
        y: ArrayLike,
        y_pred: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> dict:
        """Updates the metrics after a step and returns the logs.

        Args:
            loss: The result of `compute_loss`, before any loss scaling.
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples. Defaults to `None`.
        """
        self.step_record.finished += 1
        # `compute_loss` returns the loss divided by the number of replicas.
        _add_batch_mean(_keras.loss_tracker(self), loss * num_replicas(), x)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Computes the loss: the evidence bound with variational layers.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
            training: Whether this is the loss of training.
        """
        if training:  # Layers may have been added after `compile`.
            self.guard_likelihood()
            check_mask(self, self._methods(), y_pred)
        loss = super().compute_loss(
            x, y, y_pred, sample_weight, training=training
        )
        # In training, an objective adds its own KL.
        if variational_layers(self) or (not training and _divergences(self)):
            # An own `train_step` may leave out the inputs.
            batch = y_pred if x is None else x
            loss = self._evidence_bound.complete(self, loss, batch, training)
        return loss

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict:
        """Updates the metrics, and checks them and the outputs.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
        """
        self._logits_check.observe(self, y_pred)
        _checks.check_metrics(self, y, y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def guard_likelihood(self) -> None:
        """Checks the loss if a method uses the loss as a likelihood."""
        guard_loss(self, self._methods())

    def update_evidence_bound(
        self, x: ArrayLike, *, nll: ArrayLike, kl: ArrayLike | None
    ) -> None:
        """Updates the metrics `nll` and `kl` after a batch.

        Args:
            x: The inputs.
            nll: Mean negative log-likelihood of the batch.
            kl: KL divided by N, or `None` if N is unknown.
        """
        self._evidence_bound.update(x, nll, kl)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The metrics of Keras, and `nll` and `kl` if the model has a KL."""
        metrics = super().metrics
        if self._evidence_bound is not None and _divergences(self):
            metrics = [*metrics, *self._evidence_bound.metrics]
        return metrics

    @property
    def losses(self) -> list:
        """The losses that layers have added, such as the KL."""
        if self.step_record is not None:
            self.step_record.losses += 1
        return super().losses

    def _maybe_symbolic_build(
        self, iterator: Any = None, data_batch: Any = None
    ) -> None:
        alone = _keras.strategy_of_model(self) is None
        if alone and labels_are_open(self):
            # Layers need the number of labels before the loss shows it.
            if iterator is not None:
                data_batch = _keras.source_dataset(iterator).element_spec
            _keras.symbolic_build(self, data_batch)
        elif iterator is None:
            super()._maybe_symbolic_build(iterator, data_batch)
        elif alone:
            build_metrics(self, _keras.source_dataset(iterator))
        else:
            # Keras averages the first batch over the replicas, which fails
            # if their parts of the batch differ in size.
            _workers.build_with_a_local_batch(self, iterator)

    def _symbolic_build(self, *args: Any, **kwargs: Any) -> None:
        # Keras would build the optimizer for the weights of the model, without
        # the variables of the objective.
        optimizer, self.optimizer = self.optimizer, None
        try:
            super()._symbolic_build(*args, **kwargs)
        finally:
            self.optimizer = optimizer
        build_optimizer(self)

    def _methods(self) -> list[Any]:
        """Returns the objective and the optimizer that the model has."""
        return [
            m for m in (self.objective, inner_optimizer(self)) if m is not None
        ]


class EvidenceBound:
    """Adds the KL term to the loss and tracks `nll` and `kl`.

        loss = nll + kl_weight kl + penalties                             (1)

    In training, the layers or the objective add their KL to the loss. In
    evaluation they add no KL, because N may be unknown there. If N is known,
    this class adds the KL, without `kl_weight`. The metric `nll` is the mean
    negative log-likelihood, and `kl` is the whole KL divided by N.
    """

    def __init__(self) -> None:
        self._nll = keras.metrics.Mean(name="nll")
        self._kl = keras.metrics.Mean(name="kl")
        self.metrics = [self._nll, self._kl]

    def complete(
        self, model: keras.Model, loss: Any, x: Any, training: bool
    ) -> Any:
        """Returns the loss of this replica with the KL, after a forward pass.

        Keras has already divided the loss by the number of replicas.
        """
        # A layer has no weights before its first call.
        layers = [one for one in variational_layers(model) if one.built]
        added = sum(ops.cast(one, "float32") for one in model.losses)
        nll = ops.cast(loss, "float32") * num_replicas() - added
        kl: Any = None
        if training:
            # A model with several heads may call only some of them.
            kls = [layer.kl_per_example for layer in layers]
            kls = [kl for kl in kls if kl is not None]
            if not kls:
                raise ValueError(_checks.not_in_training(model, layers[0]))
            kl = sum(kls)
        elif all(size.known for size, _ in _divergences(model)):
            kl = sum(kl() / size.value() for size, kl in _divergences(model))
            loss = loss + ops.cast(kl / num_replicas(), loss.dtype)
        self.update(x, nll, kl)
        return loss

    def update(self, x: Any, nll: Any, kl: Any) -> None:
        """Updates the metrics after a batch."""
        _add_batch_mean(self._nll, nll, x)
        if kl is not None:
            _add_batch_mean(self._kl, kl, x)


def _add_batch_mean(metric: keras.metrics.Mean, value: Any, x: Any) -> None:
    """Updates a metric with the mean of a value over a batch.

    In the last batch, a replica may have no example. The mean is then NaN, and
    does not count.
    """
    size = ops.shape(first_tensor(x))[0]
    value = ops.where(ops.equal(size, 0), ops.zeros_like(value), value)
    metric.update_state(value, sample_weight=size)


def _divergences(model: keras.Model) -> list[tuple[DatasetSize, Callable]]:
    """Returns, for each KL of a model, N and the function that computes it."""
    found: list[tuple[DatasetSize, Callable]] = [
        (layer.dataset_size, layer.kl_divergence)
        for layer in variational_layers(model)
        if layer.built
    ]
    objective: Any = getattr(model, "objective", None)
    if hasattr(type(objective), "kl_divergence"):
        kl = functools.partial(objective.kl_divergence, model)
        found.append((objective.dataset_size, kl))
    return found


def build_objective(model: keras.Model) -> list[keras.Variable]:
    """Builds the objective of a model, and returns its variables."""
    objective = getattr(model, "objective", None)
    if not isinstance(objective, OwnsVariables):
        return []
    if not objective.built:
        with outside_of_trace(), model.distribute_strategy.scope():
            objective.build(model)
    return objective.trainable_variables


def build_optimizer(model: keras.Model) -> None:
    """Builds the objective and the optimizer, for all trained variables.

    If a training step creates variables, TensorFlow traces the step twice.
    """
    of_objective = build_objective(model)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        with outside_of_trace(), model.distribute_strategy.scope():
            optimizer.build([*variables_to_build(model), *of_objective])


def variables_to_build(model: keras.Model) -> list[keras.Variable]:
    """Returns the weights for which objective and optimizer get variables.

    These are the trainable weights. A model from a file may have been frozen
    after its training: then these are the weights of the training, so that the
    file fits.
    """
    for method in (getattr(model, "objective", None), inner_optimizer(model)):
        record = getattr(method, "trained_weights", None)
        if record is not None and record.built and record.fits(model):
            return at_positions(model, record.built)
    return model.trainable_variables


def build_metrics(model: keras.Model, dataset: Any) -> None:
    """Builds the compiled metrics of a model before a step is traced.

    Otherwise Keras creates the variables of the metrics in the first step, and
    TensorFlow traces that step twice. With a deep network, the second trace
    takes a good part of the first epoch. The function does nothing for a model
    with several outputs, which also tracks the loss of each output. It does
    nothing for a subclass, whose outputs are unknown before the first call.
    `dataset` is the `tf.data.Dataset` of the steps.
    """
    metrics = _keras.compile_metrics(model)
    outputs: Any = getattr(model, "outputs", None) or ()  # a subclass has none
    if metrics is None or metrics.built or len(outputs) != 1:
        return
    _, y, _ = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
    shape = getattr(y, "shape", None)
    if shape is not None and shape.rank is not None:
        metrics.build(keras.KerasTensor(shape, y.dtype.name), outputs[0])
