"""Base class of posteriors, distributions over the weights of a model."""

import abc
import contextlib
import functools
import math
import os
import weakref
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import Self

import keras
import numpy as np

from keras_bdl._random._seeds import sequence
from keras_bdl._saving._kinds import SavedByKind
from keras_bdl._saving._state_file import read_state
from keras_bdl.distribute._replicas import assign
from keras_bdl.distribute._replicas import restored
from keras_bdl.posteriors._covered_weights import Structure
from keras_bdl.posteriors._covered_weights import TrainedWeights
from keras_bdl.posteriors._covered_weights import at_positions
from keras_bdl.posteriors._covered_weights import check_adapters
from keras_bdl.posteriors._covered_weights import check_built
from keras_bdl.posteriors._covered_weights import check_frozen_weights
from keras_bdl.posteriors._covered_weights import covered_variables
from keras_bdl.posteriors._covered_weights import fingerprint
from keras_bdl.posteriors._covered_weights import frozen_variables
from keras_bdl.posteriors._covered_weights import made_trainable
from keras_bdl.posteriors._stacked import Stacked
from keras_bdl.posteriors._stacked import stacked_of

# The models inside a block of `Posterior.sampled`.
_with_sample: weakref.WeakSet = weakref.WeakSet()


class Posterior(SavedByKind, family="a posterior"):
    """Base of all posteriors: draws samples of a model's weights.

    To add a kind of posterior, derive a class that names the covered variables
    and draws values for them. Import the module of this class before
    `keras_bdl.posteriors.load` reads a file of this class.

    `keras_bdl.predict` does not change the model, so several threads may use
    one model. `sampled` and `drawing` put a sample into the model itself: no
    other thread may use the model inside the block.

    Args:
        structure: The `Structure` of the covered variables. Defaults to
            `None`, no covered variables.

    Attributes:
        structure: The `Structure` of the covered variables, or `None`.
        frozen_weights: A fingerprint of the frozen weights of the model, such
            as those of a pretrained network, or `None` if nothing is frozen.
        trained_weights: Which weights of the model were trained and which were
            frozen, or `None` if unknown. Layers may be frozen or unfrozen
            after training: the posterior stays the same.
        kind: Name of the class in files.
        trained_under_draws: Whether training drew the weights from this
            posterior. The BatchNorm statistics of the model are then averages
            over posterior samples and need no new estimate.
        can_be_linearized: Whether the posterior has a mean around which a
            network can be linearised.
        linearized_by_default: Whether `keras_bdl.predict` linearises the
            network around the mean unless told otherwise.

    Example:

    ```python
    with posterior.sampled(model, seed=0):
        probabilities = model.predict(x, verbose=0)  # of one sample
    ```
    """

    frozen_weights: str | None = None
    trained_weights: TrainedWeights | None = None
    trained_under_draws: bool = False
    can_be_linearized: ClassVar[bool] = True
    linearized_by_default: ClassVar[bool] = False

    def __init__(self, structure: Structure | None = None):
        self.structure = structure

    def __repr__(self) -> str:
        facts = [f"{name}={value}" for name, value in self._facts().items()]
        return f"{type(self).__name__}({', '.join(facts)})"

    @property
    def is_point(self) -> bool:
        """Whether all samples are equal, so that one sample is enough."""
        return False

    @abc.abstractmethod
    def sample(self, seed: int) -> list[np.ndarray]:
        """Returns one sample: arrays in the order of `variables(model)`.

        Args:
            seed: Selects the sample.
        """

    @abc.abstractmethod
    def mean(self) -> list[np.ndarray]:
        """Returns the mean: arrays in the order of `variables(model)`."""

    def variables(self, model: keras.Model) -> list:
        """Returns the variables of the model that a sample replaces.

        These are the variables that were trained, also if they are frozen now.

        Args:
            model: A model that `check` accepts.
        """
        return covered_variables(model, self.trained_weights, self.structure)

    def frozen_variables(self, model: keras.Model) -> list:
        """Returns the variables of the model that were frozen in training.

        Args:
            model: A model that `check` accepts.
        """
        record = self.trained_weights
        if record is not None and record.fits(model):
            return at_positions(model, record.frozen)
        trained = [*model.trainable_variables, *self.variables(model)]
        return frozen_variables(model, trained)

    def needs_batch_norm(self, seed: int) -> bool:
        """Returns whether a sample needs new BatchNorm statistics.

        The statistics in the model may belong to other weights.

        Args:
            seed: Selects the sample.
        """
        return True

    def assignments(
        self, model: keras.Model, seed: int
    ) -> list[tuple[Any, Any]]:
        """Returns the values that a sample sets, without setting them.

        Args:
            model: A model that `check` accepts.
            seed: Selects the sample.

        Returns:
            Pairs of a variable of the model and a value. If several pairs
            have the same variable, the last pair applies.
        """
        values = self.sample(seed)
        return list(zip(self.variables(model), values, strict=True))

    def stacked(
        self,
        model: keras.Model,
        seeds: Sequence[int],
        *,
        centered: bool = False,
    ) -> Stacked:
        """Returns several samples, stacked: what they share, and what varies.

        The samples are those of `assignments`. A posterior that draws many
        samples at once faster than one by one has its own method.

        Args:
            model: A model that `check` accepts.
            seeds: Select the samples.
            centered: Whether to subtract the mean from what varies. Defaults
                to `False`.
        """
        centers = None
        if centered:
            centers = {id(v): m for v, m in self.mean_assignments(model)}
        each = (self.assignments(model, seed) for seed in seeds)
        return stacked_of(enumerate(each), len(seeds), centers)

    def mean_assignments(self, model: keras.Model) -> list[tuple[Any, Any]]:
        """Returns the values of the mean, in the form of `assignments`.

        Args:
            model: A model that `check` accepts.
        """
        return list(zip(self.variables(model), self.mean(), strict=True))

    def covariance_blocks(self) -> list[Any] | None:
        """Returns the covariance as `KroneckerBlock`s, if it has this form."""
        return None

    def batch_assignments(
        self, model: keras.Model, seed: int, batch_index: int
    ) -> list[tuple[Any, Any]]:
        """Returns the values that a sample sets before one batch.

        Only dropout sets values here, since its masks depend on the batch.
        Otherwise the list is empty.

        Args:
            model: A model that `check` accepts.
            seed: Selects the sample.
            batch_index: Index of the batch, counted from 0.

        Returns:
            Pairs of a variable of the model and a value.
        """
        return []

    def drops(self, seed: int) -> bool:
        """Returns whether dropout must be on for a sample.

        Args:
            seed: Selects the sample.
        """
        return False

    def seeds(self, seed: int, samples: int) -> Sequence[int]:
        """Returns the seeds of several samples that are averaged together.

        `Ensemble` and `Mixture` select seeds that give each member or component
        its share. The list has one seed if `is_point` is `True`.

        Args:
            seed: Selects the whole set.
            samples: Number of samples.
        """
        count = 1 if self.is_point else samples
        return sequence(seed).generate_state(count, np.uint64).tolist()

    def check(self, model: keras.Model) -> None:
        """Raises an error if the posterior does not belong to the model.

        Args:
            model: Any Keras model.
        """
        check_built(model)
        self._check_structure(model)
        if self.frozen_weights is not None:
            frozen = self.frozen_variables(model)
            check_frozen_weights(model, self.frozen_weights, frozen)

    def beside_frozen_weights_of(
        self, model: keras.Model, trained: Sequence[Any] | None = None
    ) -> Self:
        """Records the frozen weights of a model, and returns the posterior.

        `check` then refuses models with other frozen weights.

        Args:
            model: The trained model.
            trained: The variables that were trained. Defaults to `None`: those
                that are trainable now.
        """
        check_adapters(model)
        record = TrainedWeights.of(model, trained)
        frozen = at_positions(model, record.frozen)
        return self.beside(record, fingerprint(model, frozen))

    def beside(
        self, record: TrainedWeights | None, frozen_weights: str | None
    ) -> Self:
        """Sets what training knew of frozen weights; returns the posterior.

        Args:
            record: The value of `trained_weights`.
            frozen_weights: The value of `frozen_weights`.
        """
        self.trained_weights = record
        self.frozen_weights = frozen_weights
        return self

    @contextlib.contextmanager
    def sampled(self, model: keras.Model, seed: int) -> Iterator[keras.Model]:
        """Puts one sample into the model for the length of a block.

        When the block ends or raises, the model gets back all its weights,
        BatchNorm statistics and seed generators.

        Args:
            model: A model that `check` accepts.
            seed: Selects the sample.

        Yields:
            The model.
        """
        outermost = model not in _with_sample
        with self.drawing(model) as draw:
            _with_sample.add(model)
            try:
                draw(seed)
                yield model
            finally:
                if outermost:
                    _with_sample.discard(model)

    @contextlib.contextmanager
    def drawing(self, model: keras.Model) -> Iterator[Callable[[int], None]]:
        """Puts several samples into the model, one after the other.

        Like `sampled`, the block restores the model at its end. BatchNorm
        statistics change only if the posterior covers them or the block
        changes them.

        Args:
            model: A model that `check` accepts.

        Yields:
            A function that takes a seed and puts this sample into the model.
        """
        self.check(model)
        with restored(model.variables):
            yield functools.partial(self._put, model)

    def position(self, model: keras.Model, seed: int, batch_index: int) -> None:
        """Prepares the sample in a model for the next batch.

        Call this method before each batch, inside `sampled` or `drawing`.
        Only dropout needs this call: its masks depend on the batch.

        Args:
            model: The model that holds the sample.
            seed: The seed of the sample.
            batch_index: Index of the batch, counted from 0.
        """
        assign(self.batch_assignments(model, seed, batch_index))

    def get_state(self) -> dict[str, Any]:
        """Returns the content of a saved file as nested dicts and arrays."""
        state: dict[str, Any] = {"kind": self.kind}
        if self.structure is not None:
            state["structure"] = self.structure.get_state()
        if self.frozen_weights is not None:
            state["frozen_weights"] = self.frozen_weights
        if self.trained_weights is not None:
            state["trained_weights"] = self.trained_weights.get_state()
        return state

    @classmethod
    @abc.abstractmethod
    def from_state(cls, state: dict[str, Any]) -> "Posterior":
        """Returns the posterior that `get_state` described.

        Args:
            state: The result of `get_state`.
        """

    def _facts(self) -> dict[str, Any]:
        """Returns the names and values that `repr` shows."""
        if self.structure is None:
            return {}
        shapes = self.structure.shapes
        weights = sum(math.prod(shape) for shape in shapes)
        return {"num_variables": len(shapes), "num_weights": weights}

    def _check_structure(self, model: keras.Model) -> None:
        variables = self.variables(model)
        if self.structure is None or self.structure.fits(variables):
            return
        try:
            self.structure.check(variables)
        except ValueError as error:
            if len(model.trainable_variables) == len(made_trainable(model)):
                raise
            raise ValueError(
                f"{error} Some layers of this model are frozen: freeze the "
                "layers that were frozen in training, and no others."
            ) from error

    def _put(self, model: keras.Model, seed: int) -> None:
        assign(self.assignments(model, seed))


def load(path: str | os.PathLike, *, stream: bool = False) -> Posterior:
    """Returns the posterior that `Posterior.save` wrote to a file.

    Args:
        path: The file.
        stream: Whether the members of an `Ensemble` stay on disk until a
            sample needs them. Defaults to `False`.

    Example:

    ```python
    posterior.save("posterior.bdl")
    posterior = keras_bdl.posteriors.load("posterior.bdl")
    ```
    """
    return from_state(read_state(path, lazy=stream))


def from_state(state: dict[str, Any]) -> Posterior:
    """Returns the posterior that `Posterior.get_state` described."""
    posterior = Posterior.class_of_state(state).from_state(state)
    return posterior.beside(
        TrainedWeights.from_state(state.get("trained_weights")),
        state.get("frozen_weights"),
    )


def holds_sample(model: keras.Model) -> bool:
    """Returns whether a model is inside a block of `Posterior.sampled`.

    It then holds a posterior sample instead of its own weights.
    """
    return model in _with_sample
