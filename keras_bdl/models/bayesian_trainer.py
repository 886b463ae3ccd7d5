"""The training loop shared by `keras_bdl.Model` and `keras_bdl.Sequential`."""

import functools
import inspect

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.data.dataset_size import dataset_sizes
from keras_bdl.data.dataset_size import tell_dataset_size
from keras_bdl.distribute.replica_gradients import for_all_replicas
from keras_bdl.distribute.replica_gradients import looks_at_gradients
from keras_bdl.distribute.replicas import batch_of_group
from keras_bdl.distribute.replicas import replica_weight
from keras_bdl.distribute.replicas import statistics_of_examples
from keras_bdl.layers.annealing import end_annealing
from keras_bdl.loss_scaling import inner_optimizer
from keras_bdl.models.build import build_optimizer
from keras_bdl.models.build import build_posterior
from keras_bdl.models.checked_trainer import CheckedTrainer
from keras_bdl.models.evidence_bound import EvidenceBound
from keras_bdl.models.evidence_bound import PriorVersions
from keras_bdl.models.evidence_bound import add_batch_mean
from keras_bdl.models.evidence_bound import divergences
from keras_bdl.models.evidence_bound import variational_layers
from keras_bdl.models.fit_arguments import check_compile_arguments
from keras_bdl.models.fit_arguments import check_fit
from keras_bdl.models.fit_arguments import compile_config
from keras_bdl.models.sampled_outputs import average_draws
from keras_bdl.models.sampled_outputs import call_with_draws
from keras_bdl.models.sampled_outputs import likelihoods_of
from keras_bdl.models.strategy_check import check_scope
from keras_bdl.models.strategy_check import check_strategy
from keras_bdl.models.warning_trainer import WarningTrainer
from keras_bdl.protocols import KnowsModel
from keras_bdl.protocols import OwnsTrainStep


class BayesianTrainer(WarningTrainer, CheckedTrainer):
    """What `keras_bdl` adds to `compile`, `fit`, `evaluate` and `predict`."""

    train_samples = 1
    samples = 0
    sample_replicas = 1
    said_endless = False  # the warning, once
    _evidence_bound = None

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        *args,
        objective=None,
        train_samples=1,
        samples=0,
        sample_replicas=1,
        **kwargs,
    ):
        """Configures the model for training.

        Args:
            optimizer: As of `keras.Model.compile`; here also the optimizers
                of `keras_bdl` that run the training step themselves.
            loss: As of `keras.Model.compile`; see `keras_bdl.Model`.
            *args: As of `keras.Model.compile`.
            objective: A `keras_bdl.objectives` objective that replaces the
                plain loss in training. Defaults to `None`.
            train_samples: Monte-Carlo draws in a training step: the loss is
                their mean. Defaults to `1`.
            samples: Posterior draws in `evaluate` and `predict`; `0` is the
                posterior mean. Probabilities are averaged where the loss is a
                cross-entropy, otherwise outputs; of a loss that Keras does not
                know, `evaluate` averages the values. Defaults to `0`.
            sample_replicas: On how many replicas of a `tf.distribute` strategy
                every example is seen in training, each with draws of its own.
                The number of replicas shows the whole batch to all of them:
                Monte-Carlo parallelism, for small batches. Defaults to `1`,
                data parallelism.
            **kwargs: As of `keras.Model.compile`.
        """
        check_compile_arguments(objective, train_samples, samples)
        check_scope(self)
        with self.distribute_strategy.scope():
            super().compile(optimizer, loss, *args, **kwargs)
        check_strategy(self, objective, sample_replicas)
        self._evidence_bound = EvidenceBound()
        self._prior_versions = PriorVersions()
        self.objective = objective
        self.train_samples = train_samples
        self.samples = samples
        self.sample_replicas = sample_replicas
        for method in self._methods():
            if isinstance(method, KnowsModel):
                method.attach(self)
        if self.built:
            build_posterior(self)
        self.check_likelihood()
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
                    auto_scale_loss=self._auto_scale_loss,
                )
            )
        return config

    def compile_from_config(self, config):
        """Compiles as `get_compile_config` says, with optimizer slots."""
        if type(self).compile is not BayesianTrainer.compile:
            # A user's own `compile`: Keras says what to do.
            return super().compile_from_config(config)
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            build_optimizer(self)

    @functools.wraps(keras.Model.fit)
    def fit(self, *args, **kwargs):
        """Trains the model, once N is known to whoever asks for it."""
        arguments = inspect.signature(keras.Model.fit).bind(
            self, *args, **kwargs
        )
        arguments.apply_defaults()
        check_fit(self, arguments.arguments)
        sizes = dataset_sizes(self, self._methods())
        if sizes:
            tell_dataset_size(self, sizes, arguments.arguments)
        try:
            return super().fit(*args, **kwargs)
        except BaseException:
            end_annealing(self)  # No callback hears of it.
            raise

    def make_train_function(self, force=False):
        """Makes the training step; anew where layers got other priors.

        Args:
            force: Whether to make it anew in any case. Defaults to `False`.
        """
        if self.built:
            build_optimizer(self)
        force |= self._prior_versions.differ(self, "train")
        return super().make_train_function(force)

    def make_test_function(self, force=False):
        """Makes the step of an evaluation; anew as the training step.

        Args:
            force: Whether to make it anew in any case. Defaults to `False`.
        """
        force |= self._prior_versions.differ(self, "test")
        return super().make_test_function(force)

    @property
    def metrics(self):
        """The metrics of Keras and, where there is a KL, `nll` and `kl`."""
        metrics = super().metrics
        if self._evidence_bound is not None and divergences(self):
            metrics = [*metrics, *self._evidence_bound.metrics]
        return metrics

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Computes the loss; with variational layers, the evidence bound.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
            training: Whether the outputs are those of training.
        """
        loss = super().compute_loss(
            x, y, y_pred, sample_weight, training=training
        )
        # In training, an objective adds what belongs to it.
        if variational_layers(self) or (not training and divergences(self)):
            loss = self._evidence_bound.complete(self, loss, x, training)
        return loss

    def train_step(self, data):
        """Trains on one batch, or lets a method do it that asks for it."""
        data = batch_of_group(data, self.sample_replicas)
        with statistics_of_examples(self, data):
            return self._train_on(data)

    def _train_on(self, data):
        for method in self._methods():
            if isinstance(method, OwnsTrainStep):
                return method.bayesian_train_step(self, data)
        weight = replica_weight(data)
        alone = weight is None and not looks_at_gradients(self.optimizer)
        if self.train_samples == 1 and alone:
            return super().train_step(data)

        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            outputs, losses = [], []
            for _ in range(self.train_samples):
                outputs.append(self._call_for(x, training=True))
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
        """Evaluates one batch with the mean or the draws of the posterior."""
        if self.samples == 0:
            return super().test_step(data)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        outputs = call_with_draws(self, self._methods(), x)
        likelihoods = likelihoods_of(self, outputs[0])
        y_pred = average_draws(outputs, likelihoods)
        # The loss of the averaged prediction, where an average of outputs is
        # one; otherwise the average of the losses.
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
        """Predicts one batch with the mean or the draws of the posterior."""
        if self.samples == 0:
            return super().predict_step(data)
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        outputs = call_with_draws(self, self._methods(), x)
        return average_draws(outputs, likelihoods_of(self, outputs[0]))

    def finish_draws(self, losses, x, y, outputs, sample_weight=None):
        """Updates the metrics after a step of several draws, as `finish_step`.

        Args:
            losses: What `compute_loss` returned for each draw.
            x: The inputs.
            y: The targets.
            outputs: The outputs of each draw.
            sample_weight: The weights of the examples. Defaults to `None`.
        """
        y_pred = outputs[0]
        if len(outputs) > 1:
            y_pred = average_draws(outputs, likelihoods_of(self, y_pred))
        loss = ops.mean(ops.stack(losses))
        return self.finish_step(loss, x, y, y_pred, sample_weight)

    def finish_step(self, loss, x, y, y_pred, sample_weight=None):
        """Updates the metrics after a step and returns the logs.

        Args:
            loss: What `compute_loss` returned, before any loss scaling.
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples. Defaults to `None`.
        """
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        # `compute_loss` returns this replica's share of the mean.
        add_batch_mean(_keras.loss_tracker(self), loss * replicas, x)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def _symbolic_build(self, *args, **kwargs):
        # Keras would build the optimizer for the weights of the model alone.
        optimizer, self.optimizer = self.optimizer, None
        try:
            super()._symbolic_build(*args, **kwargs)
        finally:
            self.optimizer = optimizer
        build_optimizer(self)

    def _call_for(self, x, training):
        if _keras.call_takes_training(self):
            return self(x, training=training)
        return self(x)

    def _methods(self):
        """Who may own a part of the work; an objective comes first."""
        return [
            m for m in (self.objective, inner_optimizer(self)) if m is not None
        ]
