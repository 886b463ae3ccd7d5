"""A finite set of networks."""

import keras
import numpy as np

from keras_bdl.arguments import as_list
from keras_bdl.distribute.workers import weights_of_first_replica
from keras_bdl.posteriors.gaussian import all_finite
from keras_bdl.posteriors.gaussian import read_only
from keras_bdl.posteriors.posterior import Posterior
from keras_bdl.posteriors.posterior import check_built
from keras_bdl.posteriors.structure import Structure
from keras_bdl.random.counter_numbers import sequence
from keras_bdl.saving.lazy_array import LazyArray


class Ensemble(Posterior):
    """Several trained networks, or samples of a Markov chain, equally likely.

    A member is everything that `model.get_weights()` returns, BatchNorm
    statistics included. Draw `seed` is the member `seed` modulo their number.

    Members that were loaded with `keras_bdl.posteriors.load(path,
    stream=True)` stay on disk, and each draw reads one.

    Args:
        members: One list of arrays a member.
        names: Leaf names of the variables, to recognise the model by.
            Defaults to `None`: only shapes are compared.

    Example:

    ```python
    posterior = keras_bdl.posteriors.Ensemble.from_models([net_1, net_2])
    prediction = keras_bdl.predict(net_1, x, posterior=posterior, samples=2)
    ```
    """

    def __init__(self, members: list, names: list | None = None):
        members = as_list("members", members, "lists of arrays")
        if not members:
            raise ValueError(
                "`members` must hold the weights of at least one network. "
                "Received: members=[]"
            )
        self._members = [
            [_as_weight(a, (m, i)) for i, a in enumerate(_as_member(m, member))]
            for m, member in enumerate(members)
        ]
        shapes = [a.shape for a in self._members[0]]
        for m, member in enumerate(self._members):
            others = [a.shape for a in member]
            if others != shapes:
                raise ValueError(
                    "`members` must all have the shapes of the first. "
                    f"Received: members[{m}] with {_difference(others, shapes)}"
                )
        super().__init__(Structure(shapes, names))

    @classmethod
    def from_models(cls, models: list):
        """Returns the ensemble of trained models of one architecture."""
        models = as_list("models", models, "Keras models")
        if not models:
            return cls([])
        for model in models:
            check_built(model)
        structure = Structure.of(models[0].weights)
        for model in models[1:]:
            structure.check(model.weights)
        members = [weights_of_first_replica(model) for model in models]
        return cls(members, structure.names)

    def __len__(self):
        return len(self._members)

    @property
    def is_point(self):
        """Whether there is one member."""
        return len(self) == 1

    def variables(self, model):
        """Returns all weights, BatchNorm statistics included."""
        return model.weights

    def needs_batch_norm(self, seed):
        """Each member has its own statistics."""
        return False

    def seeds(self, seed, samples):
        """Takes the members in turn, from one that depends on `seed`."""
        start = int(sequence(seed).generate_state(1)[0])
        return [start + i for i in range(1 if self.is_point else samples)]

    def sample(self, seed):
        """Returns one member, read-only."""
        sequence(seed)  # refuses what is no seed
        return [np.asarray(a) for a in self._members[seed % len(self)]]

    def mean(self):
        """Returns the average of the weights.

        It makes sense for samples of one chain; the average of networks that
        were trained from different starts is no good network.
        """
        total = [np.zeros(shape) for shape in self.structure.shapes]
        for member in self._members:
            for t, a in zip(total, member, strict=True):
                t += np.asarray(a, "float64")
        return [
            (t / len(self)).astype(a.dtype)
            for t, a in zip(total, self._members[0], strict=True)
        ]

    def get_state(self):
        """Returns all arguments."""
        return {**super().get_state(), "members": self._members}

    @classmethod
    def from_state(cls, state):
        """Returns the posterior that `get_state` described."""
        return cls(state["members"], state["structure"]["names"])

    def _facts(self):
        return {**super()._facts(), "num_members": len(self)}


def _as_member(position, member):
    if isinstance(member, keras.Model):
        raise ValueError(
            "`members` must be lists of arrays. Use "
            "`Ensemble.from_models(models)` for trained models. Received: "
            f"members[{position}], the model {member.name!r}"
        )
    return as_list(f"members[{position}]", member, "arrays")


def _as_weight(array, position):
    if isinstance(array, LazyArray):
        return array
    array = np.asarray(array)
    if not all_finite(array):
        raise ValueError(
            "`members` must be finite. Received: NaN or infinity in "
            "members[{}][{}]. Leave out a network that "
            "diverged.".format(*position)
        )
    return read_only(array)


def _difference(received, expected):
    for i, (r, e) in enumerate(zip(received, expected, strict=False)):
        if r != e:
            return f"array {i} of shape {r}, expected {e}"
    return f"{len(received)} arrays, expected {len(expected)}"
