"""Monte-Carlo dropout."""

import contextlib
import functools
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NoReturn

import keras
import numpy as np

from keras_bdl._random._keyed_noise import sequence
from keras_bdl.distribute._replicas import restored
from keras_bdl.posteriors._dropout_switch import dropout_in_model
from keras_bdl.posteriors._dropout_switch import dropout_layers
from keras_bdl.posteriors._dropout_switch import seed_generators
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.posteriors._structure import check_built


class MCDropout(Posterior):
    """Dropout that stays on when the model predicts.

    Use `MCDropout` with a network that was trained with dropout. This
    posterior turns on `Dropout`, `SpatialDropout`, `GaussianDropout`,
    `AlphaDropout` and the dropout inside attention and recurrent layers. Data
    augmentation stays off, and BatchNorm uses its moving statistics.

    A sample is a set of masks, one for each example of a batch. A sample has no
    weights, so `sample` raises an error. The masks depend on the seed and the
    batch size. `position` makes the masks depend on the batch number, too. XLA
    and the kind of device can also change the masks. So a sample is not one
    function of the inputs, unlike a sample of any other posterior.

    Example:

    ```python
    dropout = keras_bdl.Sequential([keras.layers.Dropout(0.5), model])
    dropout.compile("sgd", loss)
    dropout.build(x.shape)
    prediction = keras_bdl.predict(
        dropout, x_test, keras_bdl.posteriors.MCDropout(), samples=3
    )
    ```

    Reference:
        - [Gal and Ghahramani, 2016](https://arxiv.org/abs/1506.02142)
    """

    can_be_linearized = False

    def sample(self, seed: int) -> NoReturn:
        """Raises an error: a sample is a set of masks, not of weights."""
        raise TypeError(
            "`MCDropout` draws masks, not weights. Use "
            "`with posterior.sampled(model, seed):`. Received: a call of "
            f"`sample(seed={seed})`"
        )

    def mean(self) -> NoReturn:
        """Raises an error: MC dropout has no mean of weights.

        A sample is a set of masks, not of weights.
        """
        raise TypeError(
            "`MCDropout` has no mean of weights. Predict with the model "
            "itself instead. Received: a call of `mean()`"
        )

    def variables(self, model: keras.Model) -> list:
        """Returns an empty list: a sample replaces no weights."""
        return []

    def needs_batch_norm(self, seed: int) -> bool:
        """Returns `False`: the weights are the trained ones."""
        return False

    def check(self, model: keras.Model) -> None:
        """Raises an error if the model has no dropout to turn on."""
        check_built(model)
        if not dropout_layers(model):
            raise ValueError(
                "`model` must have a dropout layer with a positive rate for "
                "`MCDropout`. Add one and train again. Received: "
                f"model={model.name!r} without one"
            )

    def assignments(
        self, model: keras.Model, seed: int
    ) -> list[tuple[Any, Any]]:
        """Returns the states of the seed generators for the first batch."""
        return self.batch_assignments(model, seed, 0)

    def batch_assignments(
        self, model: keras.Model, seed: int, batch_index: int
    ) -> list[tuple[Any, Any]]:
        """Returns the states of the seed generators for one batch."""
        generators = seed_generators(dropout_layers(model))
        return [
            (
                generator.state,
                sequence(seed, batch_index, i).generate_state(2, np.uint32),
            )
            for i, generator in enumerate(generators)
        ]

    def drops(self, seed: int) -> bool:
        """Returns `True`: dropout is on in every sample."""
        return True

    @contextlib.contextmanager
    def drawing(self, model: keras.Model) -> Iterator[Callable[[int], None]]:
        """Turns dropout on in the block. A sample sets the seed generators."""
        self.check(model)
        with restored(model.non_trainable_variables), dropout_in_model(model):
            yield functools.partial(self._put, model)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "MCDropout":
        """Returns an `MCDropout`, which has no arguments."""
        return cls()
