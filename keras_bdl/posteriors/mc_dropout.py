"""Monte-Carlo dropout."""

import contextlib
import functools

import numpy as np

from keras_bdl.distribute.variable_copies import restored
from keras_bdl.posteriors.dropout import dropout_in_model
from keras_bdl.posteriors.dropout import dropout_layers
from keras_bdl.posteriors.dropout import seed_generators
from keras_bdl.posteriors.posterior import Posterior
from keras_bdl.posteriors.posterior import check_built
from keras_bdl.random.counter_numbers import sequence


class MCDropout(Posterior):
    """Dropout that stays on when the model predicts.

    Only dropout is turned on: `Dropout`, `SpatialDropout`, `GaussianDropout`,
    `AlphaDropout`, and that inside attention and recurrent layers. Data
    augmentation stays off, BatchNorm uses its moving statistics.

    A draw is a set of masks, one for each example of a batch, and not a set
    of weights: there is nothing to `sample`. It is the same for the same
    (seed, batch size), and with `position` for the same (seed, batch number,
    batch size), on the same kind of device and with XLA either on or off.
    This is the one posterior whose draw is not one function.

    Example:

    ```python
    with keras_bdl.posteriors.MCDropout().sampled(model, seed=0):
        probabilities = model.predict(x)
    ```

    Reference:
        - [Gal and Ghahramani, 2016](https://arxiv.org/abs/1506.02142)
    """

    def sample(self, seed):
        """Raises an error: there are no weights."""
        raise TypeError(
            "`MCDropout` draws masks and no weights. Use "
            "`with posterior.sampled(model, seed):`. Received: a call of "
            f"`sample(seed={seed})`"
        )

    def mean(self):
        """Raises an error: the mean is the model as it is."""
        raise TypeError(
            "`MCDropout` has no mean over weights: use the model without a "
            "posterior. Received: a call of `mean()`"
        )

    def variables(self, model):
        """Returns no variables."""
        return []

    def needs_batch_norm(self, seed):
        """The weights are the trained ones."""
        return False

    def check(self, model):
        """Raises an error if the model has no dropout, or none to switch."""
        check_built(model)
        if not dropout_layers(model):
            raise ValueError(
                "`model` must have a dropout layer with a positive rate to "
                "be used with `MCDropout`. Add one and train again. Received: "
                f"model={model.name!r} without one"
            )

    def assignments(self, model, seed):
        """Returns the seeds of the first batch."""
        return self.batch_assignments(model, seed, 0)

    def batch_assignments(self, model, seed, batch_index):
        """Returns the states of the seed generators for one batch."""
        generators = seed_generators(dropout_layers(model))
        return [
            (
                generator.state,
                sequence(seed, batch_index, i).generate_state(2, np.uint32),
            )
            for i, generator in enumerate(generators)
        ]

    def drops(self, seed):
        """Dropout is on in every draw."""
        return True

    @contextlib.contextmanager
    def drawing(self, model):
        """Turns dropout on; a draw sets the seed generators."""
        self.check(model)
        with restored(model.non_trainable_variables), dropout_in_model(model):
            yield functools.partial(self._put, model)

    @classmethod
    def from_state(cls, state):
        """Returns an `MCDropout`: it has no arguments."""
        return cls()
