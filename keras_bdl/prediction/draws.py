"""The networks that a prediction averages."""

import warnings

import keras

from keras_bdl.data.batches import check_positive
from keras_bdl.layers.variational_layers import sampling_layers
from keras_bdl.loss_scaling import inner_optimizer
from keras_bdl.posteriors import Layerwise
from keras_bdl.posteriors import Posterior
from keras_bdl.prediction.batch_norm import batch_norm_statistics
from keras_bdl.prediction.batch_statistics import batch_norm_layers
from keras_bdl.prediction.stateless_call import moved_on
from keras_bdl.prediction.stateless_call import replaced
from keras_bdl.prediction.stateless_call import seed_states
from keras_bdl.prediction.stateless_call import values_of


class Draws:
    """The values that the variables of a model have in posterior draws.

    The model itself is not changed. Its weights are read once: a draw is one
    function for all data, also while another thread trains the model. Part
    after part of the data is shown to all draws, so each draw comes back many
    times: the same seed makes the same weights, and the BatchNorm statistics
    estimated for it the first time are kept.

    Args:
        model: A built Keras model.
        posterior: A `Posterior`, or `None`: the network as it is.
        samples: How many draws. `None`: every member of an `Ensemble` once,
            otherwise 30.
        seed: Selects the draws.
        batch_norm_batches: The `Batches` to estimate BatchNorm statistics
            on. Defaults to `None`: they stay as the draw leaves them.
    """

    def __init__(
        self, model, posterior, samples, seed: int, batch_norm_batches=None
    ):
        self.model = model
        self.posterior = posterior
        self.seeds = _seeds(posterior, samples, seed)
        self._warn_of_one_draw(samples)
        self._batches = batch_norm_batches
        self._statistics = {}
        if posterior is not None:
            posterior.check(model)
        if batch_norm_batches is None:
            self._warn_of_stale_statistics()
        self._of_model = values_of(model)
        self._seed_states = seed_states(model)

    def __len__(self):
        return len(self.seeds)

    def drops(self, index: int):
        """Whether dropout must be on where a draw is computed.

        Args:
            index: Which draw.
        """
        return self.posterior is not None and self.posterior.drops(
            self.seeds[index]
        )

    def values(self, index: int):
        """Returns a draw, a tensor for each of `model.variables`.

        Args:
            index: Which draw.
        """
        seed = self.seeds[index]
        values = self._of_model
        if self.posterior is not None:
            # A draw of layers starts from their means.
            state = zip(self.model.variables, values, strict=True)
            with keras.StatelessScope(state):
                assignments = self.posterior.assignments(self.model, seed)
            values = replaced(self.model, values, assignments)
        if self._batches is None or not self._needs_batch_norm(seed):
            return values
        if index not in self._statistics:
            self._statistics[index] = batch_norm_statistics(
                self.model, self._batches, values
            )
        return replaced(self.model, values, self._statistics[index])

    def for_batch(self, values, index: int, batch_index: int):
        """Returns a draw with the seeds that one batch has.

        Args:
            values: What `values` returned.
            index: Which draw.
            batch_index: Number of the batch.
        """
        values = list(values)
        for i in self._seed_states:
            values[i] = moved_on(values[i], index, batch_index)
        if self.posterior is None:
            return values
        assignments = self.posterior.batch_assignments(
            self.model, self.seeds[index], batch_index
        )
        return replaced(self.model, values, assignments)

    def _needs_batch_norm(self, seed):
        return self.posterior is None or self.posterior.needs_batch_norm(seed)

    def _warn_of_one_draw(self, samples):
        if self.posterior is None and samples not in (None, 1):
            warnings.warn(
                "The network as it is has one draw, and `samples` changes "
                "nothing. Give a `posterior`, or leave `samples` out. "
                f"Received: samples={samples}, posterior=None",
                stacklevel=4,
            )

    def _warn_of_stale_statistics(self):
        if self.posterior is None or not batch_norm_layers(self.model):
            return
        if self.posterior.trained_under_draws:
            return
        if any(self.posterior.needs_batch_norm(seed) for seed in self.seeds):
            warnings.warn(
                "The posterior moves the weights, and the BatchNorm statistics "
                "of the model belong to the weights it was trained with. Give "
                "training inputs as `batch_norm_data`, or freeze the "
                "BatchNorm layers. "
                f"Received: posterior={type(self.posterior).__name__}, "
                "batch_norm_data=None",
                stacklevel=4,
            )


def find_posterior(model, posterior):
    """Returns the posterior to use, or `None` for the network as it is.

    Args:
        model: A built Keras model.
        posterior: What the user gave. `None` selects the posterior of the
            compiled objective or optimizer, or of layers that draw their own
            weights. An optimizer that trained without noise is passed over.
    """
    if posterior is None:
        return _posterior_of(model)
    if not isinstance(posterior, Posterior):
        raise ValueError(
            "`posterior` must be a `keras_bdl.posteriors.Posterior`, such as "
            "the `posterior` attribute of a callback that made one, or `None`."
            f" Received: posterior={posterior!r} of type "
            f"{type(posterior).__name__}"
        )
    return posterior


def _posterior_of(model):
    for method in (getattr(model, "objective", None), inner_optimizer(model)):
        # The weights of a network that was trained without noise are good,
        # and others in their neighbourhood were never tried.
        noisy = getattr(method, "noisy_training", True)
        if noisy and callable(getattr(method, "posterior", None)):
            return method.posterior(model)
    if sampling_layers(model):
        return Layerwise(model)
    return None


def _seeds(posterior, samples, seed):
    check_positive("samples", samples)
    if posterior is None:
        return [None]
    if samples is None:
        # Only a finite posterior has a length.
        samples = len(posterior) if hasattr(posterior, "__len__") else 30
    return posterior.seeds(seed, samples)
