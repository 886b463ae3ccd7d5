"""A distribution over the weights of a model."""

import abc
import contextlib
import functools
import math
import os
import weakref

import numpy as np

from keras_bdl.distribute.variable_copies import restored
from keras_bdl.posteriors.structure import Structure
from keras_bdl.random.counter_numbers import sequence
from keras_bdl.saving.state_file import write_state

# The models in a block of `sampled`.
_holding_draws = weakref.WeakSet()


class Posterior(abc.ABC):
    """Base of all posteriors: draws the weights of a model.

    A subclass says which variables it covers and draws values for them. To
    load its files, the module that defines it has to be imported.

    `keras_bdl.predict` computes with the values of a draw and leaves the model
    alone, so threads may share a model. `sampled` and `drawing` put the draw
    into the model itself: no other thread may use the model inside the block.

    Example:

    ```python
    with posterior.sampled(model, seed=0):
        probabilities = model.predict(x)  # of one draw
    ```

    Attributes:
        structure: A `Structure`, or `None` where no variable is covered.
        kind: Name of the class in files.
        trained_under_draws: Whether the model was trained under draws from
            this posterior, so that its BatchNorm statistics are averages
            over them, and will do as they are.

    Args:
        structure: See above. Defaults to `None`.
    """

    kinds = {}
    trained_under_draws = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        package = cls.__module__.partition(".")[0]
        cls.kind = f"{package}>{cls.__name__}"
        Posterior.kinds[cls.kind] = cls

    def __init__(self, structure: Structure | None = None):
        self.structure = structure

    def __repr__(self):
        facts = [f"{name}={value}" for name, value in self._facts().items()]
        return f"{type(self).__name__}({', '.join(facts)})"

    @property
    def is_point(self):
        """Whether all draws are the same: one of them says everything."""
        return False

    @abc.abstractmethod
    def sample(self, seed: int):
        """Returns draw `seed`, arrays in the order of `variables(model)`."""

    @abc.abstractmethod
    def mean(self):
        """Returns the mean, arrays in the order of `variables(model)`."""

    def variables(self, model):
        """Returns the variables of the model that are drawn."""
        return model.trainable_variables

    def needs_batch_norm(self, seed: int):
        """Whether draw `seed` leaves BatchNorm statistics of other weights.

        They have to be estimated again before the model is used.
        """
        return True

    def assignments(self, model, seed: int):
        """Returns all that draw `seed` sets, and changes nothing.

        Args:
            model: A model that `check` accepts.
            seed: Selects the draw.

        Returns:
            Pairs of a variable of the model and a value. Of two pairs with
            the same variable, the later one counts.
        """
        values = self.sample(seed)
        return list(zip(self.variables(model), values, strict=True))

    def batch_assignments(self, model, seed: int, batch_index: int):
        """Returns what draw `seed` sets for one batch, as `assignments` does.

        Only dropout has something to set: its masks are a function of
        (seed, batch_index).

        Args:
            model: A model that `check` accepts.
            seed: Selects the draw.
            batch_index: Number of the batch, counted from 0.
        """
        del model, seed, batch_index
        return []

    def drops(self, seed: int):
        """Whether dropout must be on where draw `seed` is computed."""
        return False

    def seeds(self, seed: int, samples: int):
        """Returns the seeds of `samples` draws that are averaged together.

        Where draws fall into groups, the members of an ensemble, each group
        has its share of them. If `is_point`, there is one seed.

        Args:
            seed: Selects the whole set.
            samples: Number of draws.
        """
        count = 1 if self.is_point else samples
        return sequence(seed).generate_state(count, np.uint64).tolist()

    def check(self, model):
        """Raises a `ValueError` that says why the model does not fit."""
        check_built(model)
        self.structure.check(self.variables(model))

    @contextlib.contextmanager
    def sampled(self, model, seed: int):
        """Puts one draw into the model for the length of a block.

        Everything that the model holds is put back when the block ends, also
        when it raises: weights, BatchNorm statistics, seed generators.

        Args:
            model: A model that `check` accepts.
            seed: Selects the draw.

        Yields:
            The model.
        """
        with self.drawing(model) as draw, _marked(model):
            draw(seed)
            yield model

    @contextlib.contextmanager
    def drawing(self, model):
        """As `sampled`, for several draws in one block.

        The trained weights are saved once. BatchNorm statistics change only
        if the posterior covers them or the block changes them.

        Args:
            model: A model that `check` accepts.

        Yields:
            A function that takes a seed and puts that draw into the model.
        """
        self.check(model)
        with restored(model.variables):
            yield functools.partial(self._put, model)

    def position(self, model, seed: int, batch_index: int):
        """Gets the model, which holds draw `seed`, ready for one batch.

        To be called before each batch, see `batch_assignments`.

        Args:
            model: The model, inside `sampled` or `drawing`.
            seed: The draw.
            batch_index: Number of the batch, counted from 0.
        """
        assign(self.batch_assignments(model, seed, batch_index))

    def save(self, path: str):
        """Writes everything but the model to one file.

        Workers that hold the same posterior may all save it to one path.

        Args:
            path: The file, replaced if it exists.
        """
        folder = os.path.dirname(os.fspath(path))
        if folder and not os.path.isdir(folder):
            raise FileNotFoundError(
                "`path` must lie in a directory that exists. Make it first, "
                f"with `os.makedirs`. Received: path={os.fspath(path)!r}"
            )
        write_state(path, self.get_state())

    def get_state(self):
        """Returns all there is, in the form of `keras_bdl.saving`."""
        state = {"kind": self.kind}
        if self.structure is not None:
            state["structure"] = self.structure.get_state()
        return state

    @classmethod
    @abc.abstractmethod
    def from_state(cls, state):
        """Returns the posterior that `get_state` described."""

    def _facts(self):
        """Returns what `repr` shows."""
        if self.structure is None:
            return {}
        shapes = self.structure.shapes
        return {
            "num_variables": len(shapes),
            "num_weights": sum(math.prod(shape) for shape in shapes),
        }

    def _put(self, model, seed):
        assign(self.assignments(model, seed))


def holds_draw(model):
    """Returns whether a model is in a block of `Posterior.sampled`."""
    return model in _holding_draws


@contextlib.contextmanager
def _marked(model):
    """Lets `holds_draw` return `True` in a block; blocks may be nested."""
    outermost = model not in _holding_draws
    _holding_draws.add(model)
    try:
        yield
    finally:
        if outermost:
            _holding_draws.discard(model)


def assign(assignments):
    """Assigns the value of each pair to its variable, in order."""
    for variable, value in assignments:
        variable.assign(value)


def check_built(model):
    """Raises an error if the model has no variables yet."""
    if not model.built:
        raise ValueError(
            "`model` must be built, so that its variables exist. Call it on "
            f"data first. Received: model={model.name!r}"
        )
