"""The networks that a prediction averages: one for each posterior sample."""

import warnings
from collections.abc import Sequence
from collections.abc import Sized
from typing import Any

import keras
import tensorflow as tf

from keras_bdl._arguments import check_number
from keras_bdl._data._batches import Batches
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import Laplace
from keras_bdl.posteriors import Layerwise
from keras_bdl.posteriors import LowRankGaussian
from keras_bdl.posteriors import MatrixNormal
from keras_bdl.posteriors import MCDropout
from keras_bdl.posteriors import Mixture
from keras_bdl.posteriors._gaussian import layout_and_arrays
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.prediction._average_options import EXACT_LINKS
from keras_bdl.prediction._reestimate_batch_norm import batch_norm_statistics
from keras_bdl.prediction._reestimate_batch_norm import warn_of_stale_statistics
from keras_bdl.prediction._stateless_call import moved_on
from keras_bdl.prediction._stateless_call import seed_states
from keras_bdl.prediction._stateless_call import values_of
from keras_bdl.prediction._stateless_call import with_values

DEFAULT_SAMPLES = 30
# Not their subclasses, which may have further attributes.
_TOLD_BY_STATE = (
    Ensemble,
    Gaussian,
    Laplace,
    Layerwise,
    LowRankGaussian,
    MatrixNormal,
    MCDropout,
)
# With `samples="auto"`: how many to draw before the error is computed again,
# and how many at most.
AUTO = "auto"
SAMPLES_OF_A_STEP = 20
MOST_SAMPLES = 1000
# A list of more seeds would fill the memory before anything is checked.
LARGEST = 1_000_000


class PosteriorDraws:
    """The values of a model's variables in each posterior sample.

    The model does not change. The object reads the weights of the model once,
    so a sample is one function for the whole data set, even while another
    thread trains the model. A sample may be computed several times: the same
    seed gives the same weights every time. BatchNorm statistics are estimated
    once for each sample and kept.

    Args:
        model: A built Keras model.
        posterior: A `Posterior`, or `None` for the trained weights.
        samples: Number of samples, or `"auto"`. `None` means the default
            number of `keras_bdl.predict`.
        seed: Selects the samples.
        batch_norm_batches: The `Batches` on which BatchNorm statistics are
            estimated. Defaults to `None`: no statistics are estimated.
        linearized: Whether the outputs are linear in the weights. BatchNorm
            statistics are then estimated once, for the mean of the posterior.
            Defaults to `False`.
        link: Argument of `keras_bdl.predict`.

    Attributes:
        linearized: The argument.
        link: The argument.
        layout: With a link, the layout of the `CovarianceBlocks` of the
            posterior.
        arrays: With a link, the arrays of the `CovarianceBlocks`.
        covered: With a link, the positions in `model.variables` of the
            variables that the layout counts.
        in_steps: Whether a prediction draws the samples step by step, until
            its error is small enough.
        model_values: The values of `model.variables` when they were read.
        seed_states: Positions of the seed generators in `model.variables`.
    """

    def __init__(
        self,
        model: keras.Model,
        posterior: Posterior | None,
        *,
        samples: int | str | None,
        seed: int,
        batch_norm_batches: Batches | None = None,
        linearized: bool = False,
        link: str | None = None,
    ):
        self.model = model
        self.linearized = linearized
        self.link = link
        self.layout, self.arrays = _covariance(posterior, link)
        self.covered: tuple[int, ...] = ()
        self.posterior = posterior
        if link in EXACT_LINKS:
            samples = 1
        self.seeds = _seeds(model, posterior, samples, seed)
        self.in_steps = samples == AUTO and len(self.seeds) == MOST_SAMPLES
        self._warn_of_one_sample(samples)
        self._batches = batch_norm_batches
        self._statistics: dict[int, list] = {}
        if posterior is not None:
            posterior.check(model)
            if link is not None:
                self.covered = _positions(model, posterior.variables(model))
            if batch_norm_batches is None and self._moves_weights():
                warn_of_stale_statistics(
                    model,
                    f"`{type(posterior).__name__}`",
                    frozen=self._frozen(self.seeds[0]),
                    stacklevel=4,
                )
        self.model_values = values_of(model)
        self.seed_states = seed_states(model)

    def __len__(self) -> int:
        return len(self.seeds)

    def indices(self, drops: bool) -> list[int]:
        """Returns the indices of the samples with or without dropout.

        Args:
            drops: Whether dropout is on.
        """
        return [i for i in range(len(self)) if self.drops(i) == drops]

    def drops(self, index: int) -> bool:
        """Returns whether dropout must be on for a sample.

        Args:
            index: Index of the sample.
        """
        return self.posterior is not None and self.posterior.drops(
            self.seeds[index]
        )

    @property
    def can_be_kept(self) -> bool:
        """Whether `content` tells all that the samples depend on.

        BatchNorm statistics depend on data that may change.
        """
        return self._batches is None and _is_told_by_state(self.posterior)

    def content(self) -> list:
        """Returns nested values that are equal for equal samples only."""
        values = [
            None if i in self.seed_states else value
            for i, value in enumerate(self.model_values)
        ]
        state = None if self.posterior is None else self.posterior.get_state()
        how = [list(self.seeds), self.linearized, self.link, self.in_steps]
        return [*how, values, state]

    def mean_values(self) -> list:
        """Returns the mean of the posterior, as `values` returns a sample."""
        return self._with_statistics_of_mean(self._means())

    def _means(self):
        if self.posterior is None:
            return self.model_values
        state = zip(self.model.variables, self.model_values, strict=True)
        with keras.StatelessScope(state):
            assignments = self.posterior.mean_assignments(self.model)
        return with_values(self.model, self.model_values, assignments)

    def _with_statistics_of_mean(self, values):
        if self._batches is None or not self._needs_batch_norm(self.seeds[0]):
            return values
        if not self._statistics:
            self._statistics[0] = batch_norm_statistics(
                self.model,
                self._batches,
                self._means(),
                self._frozen(self.seeds[0]),
            )
        return with_values(self.model, values, self._statistics[0])

    def values(self, index: int) -> list:
        """Returns a sample: a tensor for each of `model.variables`.

        Args:
            index: Index of the sample.
        """
        seed = self.seeds[index]
        values = self.model_values
        if self.posterior is not None:
            # Variational layers compute a sample from their variables. In the
            # scope, the variables have the values that were read at the start.
            state = zip(self.model.variables, values, strict=True)
            with keras.StatelessScope(state):
                assignments = self.posterior.assignments(self.model, seed)
            values = with_values(self.model, values, assignments)
        if self.linearized:
            return self._with_statistics_of_mean(values)
        if self._batches is None or not self._needs_batch_norm(seed):
            return values
        if index not in self._statistics:
            self._statistics[index] = batch_norm_statistics(
                self.model, self._batches, values, self._frozen(seed)
            )
        return with_values(self.model, values, self._statistics[index])

    def seeds_of_batch(
        self, indices: Sequence[int], batch_index: int
    ) -> list[tf.Tensor]:
        """Returns the states of all seed generators for one batch.

        Args:
            indices: Indices of samples.
            batch_index: Index of the batch.

        Returns:
            A tensor with the samples on the first axis for each of
            `seed_states`.
        """
        if not self.seed_states:
            return []
        samples = []
        for index in indices:
            values = list(self.model_values)
            for i in self.seed_states:
                values[i] = moved_on(values[i], index, batch_index)
            if self.posterior is not None:
                assignments = self.posterior.batch_assignments(
                    self.model, self.seeds[index], batch_index
                )
                values = with_values(self.model, values, assignments)
            samples.append([values[i] for i in self.seed_states])
        return [tf.stack(states) for states in zip(*samples, strict=True)]

    def _needs_batch_norm(self, seed):
        return self.posterior is None or self.posterior.needs_batch_norm(seed)

    def _frozen(self, seed):
        """Returns the variables that were frozen in training, or `None`."""
        posterior = self.posterior
        if isinstance(posterior, Mixture):
            posterior = posterior.component(seed)
        return posterior and posterior.frozen_variables(self.model)

    def _moves_weights(self):
        return not self.posterior.trained_under_draws and any(
            self.posterior.needs_batch_norm(seed) for seed in self.seeds
        )

    def _warn_of_one_sample(self, samples):
        if self.posterior is None and samples not in (None, 1, AUTO):
            warnings.warn(
                "This model has no posterior, so `samples` has no effect: "
                "the trained weights are the only sample. Give a "
                "`posterior`, or leave `samples` out. "
                f"Received: samples={samples}, posterior=None",
                stacklevel=5,
            )


def _covariance(posterior, link):
    """Returns layout and arrays of the blocks that a link needs."""
    if link is None:
        return (), []
    blocks = posterior.covariance_blocks()
    if blocks is None:
        raise ValueError(
            "`link` needs a posterior of independent weights or of Kronecker "
            "factors, such as `Laplace`, `Gaussian`, `MatrixNormal`, or "
            "mean-field layers. Leave `link` out. "
            f"Received: link={link!r}, posterior={posterior}"
        )
    return layout_and_arrays(blocks)


def _positions(model, variables):
    position = {id(v): i for i, v in enumerate(model.variables)}
    return tuple(position[id(v)] for v in variables)


def _is_told_by_state(posterior):
    """Returns whether equal states give equal samples, for sure."""
    if isinstance(posterior, Mixture):
        return all(map(_is_told_by_state, posterior.components))
    return posterior is None or type(posterior) in _TOLD_BY_STATE


def _seeds(model, posterior, samples, seed) -> Sequence[Any]:
    if samples not in (None, AUTO):
        check_number(
            "samples", samples, at_least=1, at_most=LARGEST, integer=True
        )
    if posterior is None:
        return [None]
    if samples == AUTO:
        finite = isinstance(posterior, Sized)
        return posterior.seeds(seed, len(posterior) if finite else MOST_SAMPLES)
    # A model of the user may have another attribute `samples`.
    if samples is None and hasattr(model, "train_samples"):
        samples = model.samples or None
    if samples is None:
        # Only a finite posterior, such as an `Ensemble`, has a length.
        finite = isinstance(posterior, Sized)
        samples = len(posterior) if finite else DEFAULT_SAMPLES
    return posterior.seeds(seed, samples)
