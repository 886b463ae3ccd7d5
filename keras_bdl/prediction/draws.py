"""The networks that a prediction averages."""

import contextlib
import warnings

from keras_bdl.posteriors import Layerwise
from keras_bdl.posteriors import Posterior
from keras_bdl.posteriors import SamplesWeights
from keras_bdl.posteriors import restored
from keras_bdl.prediction.batch_norm import assign_statistics
from keras_bdl.prediction.batch_norm import batch_norm_statistics
from keras_bdl.prediction.batch_norm_layers import batch_norm_layers
from keras_bdl.prediction.batch_norm_layers import moving_statistics
from keras_bdl.prediction.batches import check_positive
from keras_bdl.prediction.shards import same_on_all_replicas
from keras_bdl.training.inner_optimizer import inner_optimizer


class Draws:
    """Posterior draws that can be put into a model again and again.

    Part after part of the data is shown to all draws, so each draw comes
    back many times: the same seed makes the same weights, and the BatchNorm
    statistics estimated for it the first time are kept.

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
        self._put = None
        if posterior is not None:
            posterior.check(model)
        if batch_norm_batches is None:
            self._warn_of_stale_statistics()

    def __len__(self):
        return len(self.seeds)

    @contextlib.contextmanager
    def opened(self):
        """Lets `put` change the model until the block ends or raises."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(same_on_all_replicas(self.model))
            if self._batches is not None:
                layers = batch_norm_layers(self.model)
                stack.enter_context(restored(moving_statistics(layers)))
            if self.posterior is not None:
                drawing = self.posterior.drawing(self.model)
                self._put = stack.enter_context(drawing)
            yield self

    def put(self, index: int):
        """Puts a draw into the model, with BatchNorm statistics that fit."""
        seed = self.seeds[index]
        if self.posterior is not None:
            self._put(seed)
        if self._batches is None or not self._needs_batch_norm(seed):
            return
        if index not in self._statistics:
            self._statistics[index] = batch_norm_statistics(
                self.model, self._batches
            )
        assign_statistics(self._statistics[index])

    def position(self, index: int, batch_index: int):
        """Gets the model, which holds a draw, ready for one batch."""
        if self.posterior is not None:
            self.posterior.position(self.model, self.seeds[index], batch_index)

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
        posterior: What the user gave. If `None`, the compiled objective and
            optimizer are asked for `posterior(model)`, then the layers
            whether they draw their own weights.
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
        if callable(getattr(method, "posterior", None)):
            return method.posterior(model)
    if any(isinstance(n, SamplesWeights) for n in model._flatten_layers()):
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
