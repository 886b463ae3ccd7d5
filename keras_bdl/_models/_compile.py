"""The arguments of `compile`: set, saved with the model and restored."""

import functools
import inspect
import warnings
from typing import Any

import keras

from keras_bdl import _keras
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl._keras import inner_optimizer
from keras_bdl._models import _checks
from keras_bdl._models._strategy_check import check_scope
from keras_bdl._models._strategy_check import check_strategy
from keras_bdl._models._trainer import BayesianTrainer
from keras_bdl._models._trainer import EvidenceBound
from keras_bdl._models._trainer import build_objective
from keras_bdl._models._trainer import build_optimizer
from keras_bdl._protocols import DrawsFunctions
from keras_bdl._protocols import KnowsModel
from keras_bdl._protocols import OwnsPosterior
from keras_bdl._random._seeds import seeded
from keras_bdl._saving._checked_paths import CheckedPaths
from keras_bdl._saving._checked_paths import checked
from keras_bdl.layers import MCDropout
from keras_bdl.layers._variational import Variational
from keras_bdl.posteriors._covered_weights import TrainedWeights
from keras_bdl.posteriors._posterior import holds_sample as holds_draw

# Entry of a compile config: which weights were trained.
_TRAINED = "trained_weights"


class BayesianModel(CheckedPaths, BayesianTrainer):
    """Adds the options of Bayesian training to `compile`.

    `keras_bdl.Model` and `keras_bdl.Sequential` derive from this class.
    """

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: Any = None,
        *args: Any,
        objective: Any = None,
        train_samples: int = 1,
        samples: int = 0,
        sample_replicas: int = 1,
        observations: str | None = None,
        **kwargs: Any,
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
        _checks.check_compile_arguments(
            objective,
            train_samples=train_samples,
            samples=samples,
            observations=observations,
        )
        check_scope(self)
        with self.distribute_strategy.scope():
            super().compile(optimizer, loss, *args, **kwargs)
        check_strategy(self, objective, sample_replicas)
        for one in seeded([objective]):
            one.agree_on_seed(self.distribute_strategy)
        self._evidence_bound = EvidenceBound()
        self._prior_versions = {}
        self._logits_check = _checks.LogitsCheck(self)
        self.objective = objective
        self.train_samples = int(train_samples)
        self.samples = int(samples)
        self.sample_replicas = sample_replicas
        self.given_observations = observations
        self.observations = EXAMPLES if observations is None else observations
        self.step_record = _checks.StepRecord()
        for method in self._methods():
            if isinstance(method, KnowsModel):
                method.attach(self)
        if self.built:
            # `load_weights` finds the variables of a posterior.
            build_objective(self)
            if isinstance(inner_optimizer(self), OwnsPosterior):
                build_optimizer(self)
        self.guard_likelihood()
        self._auto_scale_loss = kwargs.get("auto_scale_loss", True)

    def get_compile_config(self) -> dict[str, Any] | None:
        """Returns every argument of `compile`."""
        config = super().get_compile_config()
        if not config:
            return config
        defaults = inspect.signature(BayesianModel.compile).parameters
        ours = {
            "objective": self.objective,
            "train_samples": self.train_samples,
            "samples": self.samples,
            "sample_replicas": self.sample_replicas,
            "observations": self.given_observations,
        }
        # Keras may clone a model into a model of a Keras class. The `compile`
        # of that class accepts none of these arguments. So a config omits the
        # defaults.
        changed = {
            # One by one: Keras saves an object together with its name.
            name: keras.saving.serialize_keras_object(value)
            for name, value in ours.items()
            if value != defaults[name].default
        }
        if not self._auto_scale_loss:
            changed["auto_scale_loss"] = False
        config.update(changed)
        record = self._trained_weights()
        if record is not None:
            now = TrainedWeights.of(self).trained
            if now != record.trained or now != record.built:  # frozen since
                config[_TRAINED] = record.get_state()
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles with a config, and builds the optimizer."""
        if type(self).compile is not BayesianModel.compile:
            # Keras handles a subclass with its own `compile`.
            return super().compile_from_config(config)
        config = keras.saving.deserialize_keras_object(config)
        record = TrainedWeights.from_state(config.pop(_TRAINED, None))
        methods: list[Any] = [
            method
            for method in (
                config.get("objective"),
                _keras.without_loss_scaling(config.get("optimizer")),
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
        return None

    @functools.wraps(keras.Model.load_weights)
    def load_weights(self, *args: Any, **kwargs: Any) -> None:
        """Loads the weights, and the posterior of a compiled model."""
        super().load_weights(*args, **kwargs)
        for method in self._methods() if self.compiled and self.built else ():
            if getattr(method, "trained_weights", 0) is None:
                # Layers that are frozen now were frozen in training, too.
                method.trained_weights = TrainedWeights.of(self)

    @functools.wraps(keras.Model.export)
    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        """Exports the network, and warns that it has no posterior.

        Within `posterior.sampled(model, seed)`, the sample is exported without
        a warning.
        """
        owners = [self.objective, inner_optimizer(self)]
        owners = [
            owner for owner in owners if isinstance(owner, DrawsFunctions)
        ]
        layers = [
            layer
            for layer in _keras.all_layers(self)
            if isinstance(layer, (Variational, MCDropout))
        ]
        found = {type(owner).__name__: None for owner in (*owners, *layers)}
        if found and not holds_draw(self):
            warnings.warn(
                "`export` writes one network with the present weights, which "
                "are the posterior mean after training. Its predictions have "
                "no uncertainty. For an ensemble, export one network for each "
                "of several seeds within "
                "`with posterior.sampled(model, seed):`, and average their "
                f"predictions. Received: a posterior in {', '.join(found)}",
                stacklevel=2,
            )
        return super().export(checked(filepath), *args, **kwargs)

    def _trained_weights(self) -> TrainedWeights | None:
        """Returns which weights were trained, or `None` if unknown."""
        if not self.built:
            return None
        for method in self._methods():
            record = getattr(method, "trained_weights", None)
            if record is not None and record.fits(self):
                return record.built_for(self)
        return None
