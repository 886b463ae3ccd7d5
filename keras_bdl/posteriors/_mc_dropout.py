"""Monte-Carlo dropout: dropout that stays on when a model predicts.

In Keras, the argument `training` of a layer turns its dropout on or off, at the
time when a function is traced. Inside a block of `dropout_on` or
`dropout_in_model`, dropout layers are called with `training=True`. Other layers
receive the value from the model.
"""

import contextlib
import functools
import inspect
import numbers
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NoReturn

import keras
import numpy as np

from keras_bdl import _keras
from keras_bdl._random._seeds import sequence
from keras_bdl._replaced_in_thread import replaced
from keras_bdl._replaced_in_thread import replacements_of
from keras_bdl.distribute._replicas import restored
from keras_bdl.posteriors._covered_weights import check_built
from keras_bdl.posteriors._posterior import Posterior

# For these layers `training=True` turns on dropout and nothing else. A layer
# with a dropout layer inside, such as `MultiHeadAttention`, needs no entry.
SWITCHABLE = (
    keras.layers.AlphaDropout,
    keras.layers.Attention,
    keras.layers.Dropout,
    keras.layers.GRU,
    keras.layers.GaussianDropout,
    keras.layers.LSTM,
)
RATES = (
    "rate",
    "dropout",
    "recurrent_dropout",
    "dropout_rate",
    "drop_rate",
    "drop_prob",
)


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


def dropout_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model that have dropout, also nested layers."""
    found = []
    for layer in _keras.all_layers(model):
        if not _drops(layer):
            continue
        if _can_switch(layer):
            found.append(layer)
        elif not any(
            _can_switch(inner) for inner in _keras.inner_layers(layer)
        ):
            raise ValueError(
                "`model` must have layers whose dropout can be turned on. "
                "Write this layer with a `keras.layers.Dropout` inside. "
                f"Received: layer={layer.name!r} of type "
                f"{type(layer).__name__}"
            )
    return found


def seed_generators(
    layers: Iterable[keras.layers.Layer],
) -> list[keras.random.SeedGenerator]:
    """Returns the seed generators of layers. No generator appears twice."""
    found = {}
    for layer in layers:
        for owner in [layer, *_keras.inner_layers(layer)]:
            generator = getattr(owner, "seed_generator", None)
            if isinstance(generator, keras.random.SeedGenerator):
                found[id(generator)] = generator
    return list(found.values())


@contextlib.contextmanager
def dropout_on(model: keras.Model) -> Iterator[None]:
    """Turns dropout on for this thread, inside a block.

    Other threads may use the model in the meantime, without dropout.
    """
    with _switched_on(model, all_threads=False):
        yield


@contextlib.contextmanager
def dropout_in_model(model: keras.Model) -> Iterator[None]:
    """Turns dropout on for all threads, inside a block.

    Inside the block, `predict` and `evaluate` use other traced functions. The
    next block uses the same functions again, unless the model is compiled in
    the meantime.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_switched_on(model, all_threads=True))
        # `evaluate` needs a compiled model.
        names = ("predict", "test") if model.compiled else ("predict",)
        for name in names:
            stack.enter_context(_other_function(model, name))
        yield


def dropout_is_on(model: keras.Model) -> bool:
    """Returns whether the model is in a block that turns dropout on.

    A function that was traced inside such a block is valid only inside such a
    block. Other functions are valid only outside.

    Args:
        model: A built Keras model.
    """
    return any(
        _with_dropout in replacements_of(layer, "call")
        for layer in _keras.all_layers(model)
    )


def _with_dropout(call: Callable, *args: Any, **kwargs: Any) -> Any:
    bound = inspect.signature(call).bind(*args, **kwargs)
    bound.arguments["training"] = True
    return call(*bound.args, **bound.kwargs)


@contextlib.contextmanager
def _switched_on(model: keras.Model, all_threads: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for layer in dropout_layers(model):
            stack.enter_context(
                replaced(layer, "call", _with_dropout, all_threads)
            )
        yield


def _drops(layer: keras.Layer) -> bool:
    rates = [getattr(layer, name, None) for name in RATES]
    return any(isinstance(r, numbers.Real) and float(r) > 0 for r in rates)


def _can_switch(layer: keras.Layer) -> bool:
    # Recurrent cells share no public class, only this method.
    known = isinstance(layer, SWITCHABLE) or hasattr(layer, "get_dropout_mask")
    return known and "training" in inspect.signature(layer.call).parameters


@contextlib.contextmanager
def _other_function(model: keras.Model, name: str) -> Iterator[None]:
    """Gives the model another traced function inside a block."""
    attribute = f"{name}_function"
    make = getattr(model, f"make_{name}_function")
    make()  # makes the function that the end of the block restores
    outside = getattr(model, attribute)
    inside = getattr(outside, "keras_bdl_dropout_on", None)
    if inside is None:
        make(force=True)
        inside = outside.keras_bdl_dropout_on = getattr(model, attribute)
    setattr(model, attribute, inside)
    try:
        yield
    finally:
        setattr(model, attribute, outside)
