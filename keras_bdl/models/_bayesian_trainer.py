"""The training loop shared by `keras_bdl.Model` and `keras_bdl.Sequential`."""

import contextlib
import functools
import inspect
import types
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import ArrayLike
from keras_bdl._data._count_examples import peeked
from keras_bdl._data._dataset_size import count_of_fit
from keras_bdl._data._dataset_size import dataset_sizes
from keras_bdl._data._observations import EXAMPLES
from keras_bdl._inner_optimizer import inner_optimizer
from keras_bdl._inner_optimizer import without_loss_scaling
from keras_bdl._protocols import KnowsModel
from keras_bdl._protocols import OwnsTrainStep
from keras_bdl._random._seeds import seeded
from keras_bdl.distribute._replica_gradients import for_all_replicas
from keras_bdl.distribute._replica_gradients import looks_at_gradients
from keras_bdl.distribute._replicas import batch_of_group
from keras_bdl.distribute._replicas import replica_weight
from keras_bdl.distribute._replicas import statistics_of_examples
from keras_bdl.layers._variational import end_annealing
from keras_bdl.models._build import build_optimizer
from keras_bdl.models._build import build_posterior
from keras_bdl.models._evidence_metrics import add_batch_mean
from keras_bdl.models._evidence_trainer import EvidenceTrainer
from keras_bdl.models._example_counter import CountedEpochs
from keras_bdl.models._example_counter import ExampleCounter
from keras_bdl.models._fit_arguments import check_compile_arguments
from keras_bdl.models._fit_arguments import check_fit
from keras_bdl.models._fit_arguments import compile_config
from keras_bdl.models._logits_check import LogitsCheck
from keras_bdl.models._own_steps import StepRecord
from keras_bdl.models._own_steps import TrainingFunctionCheck
from keras_bdl.models._own_steps import watched_predict_function
from keras_bdl.models._own_steps import watched_test_step
from keras_bdl.models._own_steps import watched_train_step
from keras_bdl.models._sampled_outputs import average_draws
from keras_bdl.models._sampled_outputs import call_with_draws
from keras_bdl.models._sampled_outputs import likelihoods_of
from keras_bdl.models._strategy_check import check_scope
from keras_bdl.models._strategy_check import check_strategy
from keras_bdl.models._warning_trainer import WarningTrainer
from keras_bdl.posteriors._covered_weights import TrainedWeights

# Entry of a compile config: which weights were trained.
_TRAINED = "trained_weights"


class BayesianTrainer(WarningTrainer, EvidenceTrainer):
    """Adds Bayesian training to `compile`, `fit`, `evaluate` and `predict`.

    `keras_bdl.Model` and `keras_bdl.Sequential` derive from this class.
    """

    train_samples = 1
    samples = 0
    sample_replicas = 1
    observations = EXAMPLES
    given_observations: str | None = None
    example_counter: ExampleCounter | None = None
    built: bool
    distribute_strategy: tf.distribute.Strategy

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: Any = None,
        *args,
        objective: Any = None,
        train_samples: int = 1,
        samples: int = 0,
        sample_replicas: int = 1,
        observations: str | None = None,
        **kwargs,
    ) -> None:
        """Configures the model for training.

        Args:
            optimizer: Optimizer of Keras or of `keras_bdl.optimizers`.
                Defaults to `"rmsprop"`.
            loss: Loss of Keras. If a method uses N, the loss must be the mean
                negative log-likelihood of the examples. Defaults to `None`.
            *args: Further arguments of `keras.Model.compile`.
            objective: One of `keras_bdl.objectives`, which replaces the plain
                loss in training. Defaults to `None`.
            train_samples: Number of posterior samples in a training step. The
                loss is the mean over the samples. Defaults to `1`.
            samples: Number of posterior samples in `evaluate` and `predict`.
                `0` takes the posterior mean. With a cross-entropy, the model
                averages probabilities; with any other loss, outputs. For an
                unknown loss, `evaluate` averages the loss of each sample.
                Defaults to `0`.
            sample_replicas: Number of replicas of a `tf.distribute` strategy
                that get the same examples in training, each with its own
                posterior sample. With the number of all replicas, every
                replica gets the whole batch, which suits small batches.
                Defaults to `1`: data parallelism.
            observations: What N counts. `"examples"`: entries of the first
                axis of the data. A sequence then counts as one observation,
                with the mean loss of its tokens. `"positions"`: values of the
                loss, such as each token of a sequence or each pixel. With a
                mask or `ignore_class`, the method then needs `dataset_size`.
                Several labels of an example, as in a binary cross-entropy,
                always count one by one. Defaults to `None`: `"examples"`, with
                a warning if the loss has several values for an example.
            **kwargs: Further arguments of `keras.Model.compile`.
        """
        check_compile_arguments(
            objective,
            train_samples=train_samples,
            samples=samples,
            observations=observations,
        )
        check_scope(self)
        with self.distribute_strategy.scope():
            # `keras.Model` comes after this class.
            super().compile(  # type: ignore[misc]
                optimizer, loss, *args, **kwargs
            )
        check_strategy(self, objective, sample_replicas)
        for one in seeded([objective]):
            one.agree_on_seed(self.distribute_strategy)
        self._track_evidence_bound()
        self._logits_check = LogitsCheck(self)
        self.objective = objective
        self.train_samples = int(train_samples)
        self.samples = int(samples)
        self.sample_replicas = sample_replicas
        self.given_observations = observations
        self.observations = EXAMPLES if observations is None else observations
        self.step_record = StepRecord()
        for method in self._methods():
            if isinstance(method, KnowsModel):
                method.attach(self)
        if self.built:
            build_posterior(self)
        self.guard_likelihood()
        self._auto_scale_loss = kwargs.get("auto_scale_loss", True)

    def get_compile_config(self):
        """Returns every argument of `compile`."""
        config = super().get_compile_config()
        if config:
            config.update(
                compile_config(
                    objective=self.objective,
                    train_samples=self.train_samples,
                    samples=self.samples,
                    sample_replicas=self.sample_replicas,
                    observations=self.given_observations,
                    auto_scale_loss=self._auto_scale_loss,
                )
            )
            record = self._trained_weights()
            if record is not None and self._was_frozen_since(record):
                config[_TRAINED] = record.get_state()
        return config

    def compile_from_config(self, config):
        """Compiles with a config, and builds the optimizer."""
        if type(self).compile is not BayesianTrainer.compile:
            # Keras handles a subclass with its own `compile`.
            return super().compile_from_config(config)
        config = keras.saving.deserialize_keras_object(config)
        record = TrainedWeights.from_state(config.pop(_TRAINED, None))
        methods = [
            method
            for method in (
                config.get("objective"),
                without_loss_scaling(config.get("optimizer")),
            )
            if hasattr(method, "trained_weights")
        ]
        if methods and record is None and self.built:
            record = TrainedWeights.of(self)  # nothing was frozen since
        for method in methods:
            method.trained_weights = record
        self.compile(**config)
        if self.built:
            build_optimizer(self)

    @functools.wraps(keras.Model.load_weights)
    def load_weights(self, *args, **kwargs):
        """Loads the weights, and the posterior of a compiled model."""
        super().load_weights(*args, **kwargs)
        for method in self._methods() if self.compiled and self.built else ():
            if getattr(method, "trained_weights", 0) is None:
                # Layers that are frozen now were frozen in training, too.
                method.trained_weights = TrainedWeights.of(self)

    @functools.wraps(keras.Model.fit)
    def fit(self, *args, **kwargs):
        """Counts the training examples, and trains the model."""
        call = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs)
        given = {k: v for k, v in call.arguments.items() if k != "self"}
        call.apply_defaults()
        check_fit(self, call.arguments)
        first = None
        if isinstance(call.arguments["x"], types.GeneratorType) and any(
            size.given is None for size in dataset_sizes(self, self._methods())
        ):
            first, batches = peeked(call.arguments["x"])
            given["x"] = call.arguments["x"] = batches
        with self._counting_examples(call.arguments, first) as ours:
            with self._with_callbacks(given, ours):
                try:
                    return super().fit(**given)
                except BaseException:
                    # After an error, Keras calls no `on_train_end`.
                    if end_annealing(self):
                        self.train_function = None
                    raise

    @contextlib.contextmanager
    def _counting_examples(self, fit_arguments, first):
        """Sets N, and yields the callbacks that watch the training.

        Args:
            fit_arguments: All arguments of `fit`, by name.
            first: The first batch of a Python generator, or `None`.
        """
        ours = []
        made_by = type(self).make_train_function
        if made_by is not BayesianTrainer.make_train_function:
            ours.append(TrainingFunctionCheck())
        sizes = dataset_sizes(self, self._methods())
        if not sizes:
            yield ours
            return
        counter = self._make_example_counter()
        count = count_of_fit(self, sizes, fit_arguments, first)
        counter.begin(self, sizes, count, fit_arguments)
        try:
            yield [CountedEpochs(), *ours]
        finally:
            counter.end()

    @contextlib.contextmanager
    def _with_callbacks(self, given, ours):
        """Puts callbacks before those of the user, for one `fit`."""
        theirs = given.get("callbacks")
        if not isinstance(theirs, keras.callbacks.CallbackList):
            theirs = [] if theirs is None else keras.tree.flatten(theirs)
            if ours:
                given["callbacks"] = [*ours, *theirs]
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

    def _make_example_counter(self):
        if self.example_counter is None:
            self.example_counter = ExampleCounter(self)
        return self.example_counter

    def _make_function(self, step_function):
        # `==` compares the method and its object.
        if step_function == self.train_step:
            if dataset_sizes(self, self._methods()):
                self._make_example_counter()
            step_function = watched_train_step(self, step_function)
        elif step_function == self.test_step:
            step_function = watched_test_step(self, step_function)
        return super()._make_function(step_function)

    def make_predict_function(self, force=False):
        """Makes the step of a prediction.

        Args:
            force: Whether to make a new step in any case. Defaults to `False`.
        """
        before = self.predict_function
        super().make_predict_function(force)
        if self.predict_function is not before and self.samples:
            self.predict_function = watched_predict_function(
                self, self.predict_function
            )
        return self.predict_function

    def train_step(self, data):
        """Trains on one batch; some Bayesian methods run their own step."""
        data = batch_of_group(data, self.sample_replicas)
        with statistics_of_examples(self, data):
            return self._train_on(data)

    def _train_on(self, data):
        self.step_record.training += 1
        for method in self._methods():
            if isinstance(method, OwnsTrainStep):
                logs = method.bayesian_train_step(self, data)
                if hasattr(method, "trained_weights"):
                    # A user may freeze the model after training.
                    method.trained_weights = TrainedWeights.of(self)
                return logs
        weight = replica_weight(data)
        alone = weight is None and not looks_at_gradients(self.optimizer)
        if self.train_samples == 1 and alone:
            return super().train_step(data)

        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            outputs, losses = [], []
            for _ in range(self.train_samples):
                outputs.append(
                    _keras.call_with_training(self, x, training=True)
                )
                losses.append(
                    _keras.compute_loss(
                        self, x, y, outputs[-1], sample_weight, training=True
                    )
                )
            loss = self.optimizer.scale_loss(ops.mean(ops.stack(losses)))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = for_all_replicas(self.optimizer, gradients, weight)
        self.optimizer.apply(gradients, self.trainable_variables)
        return self.finish_draws(losses, x, y, outputs, sample_weight)

    def test_step(self, data):
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

    def predict_step(self, data):
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
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        # `compute_loss` returns the loss divided by the number of replicas.
        add_batch_mean(_keras.loss_tracker(self), loss * replicas, x)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def _symbolic_build(self, *args, **kwargs):
        # Keras would build the optimizer for the weights of the model, without
        # the variables of the objective.
        optimizer, self.optimizer = self.optimizer, None
        try:
            super()._symbolic_build(*args, **kwargs)
        finally:
            self.optimizer = optimizer
        build_optimizer(self)

    def _trained_weights(self):
        """Returns which weights were trained, or `None` if unknown."""
        if not self.built:
            return None
        for method in self._methods():
            record = getattr(method, "trained_weights", None)
            if record is not None and record.fits(self):
                return record.built_for(self)
        return None

    def _was_frozen_since(self, record):
        """Returns whether other weights are trainable than in training."""
        now = TrainedWeights.of(self).trained
        return now != record.trained or now != record.built

    def _methods(self):
        """Returns the objective and the optimizer that the model has."""
        return [
            m for m in (self.objective, inner_optimizer(self)) if m is not None
        ]
