"""A mixture of posteriors."""

import contextlib
import itertools
import math
import numbers

import numpy as np

from keras_bdl.arguments import as_list
from keras_bdl.posteriors.loading import from_state
from keras_bdl.posteriors.posterior import Posterior
from keras_bdl.random.counter_numbers import generator


class Mixture(Posterior):
    """Draws a component with its weight, and then from the component.

    A mixture of SWAG posteriors of several runs is multi-SWAG. Components may
    be of any kind; where they cover different variables, only `sampled` and
    `drawing` have a meaning.

    Args:
        components: Posteriors over the weights of one architecture.
        weights: Positive numbers, of which only the ratios count. Defaults to
            `None`, equal weights.
    """

    def __init__(self, components: list, weights: list | None = None):
        self.components = as_list("components", components, "posteriors")
        if not self.components:
            raise ValueError(
                "`components` must hold at least one posterior. Received: "
                "components=[]"
            )
        for i, component in enumerate(self.components):
            _check_component(i, component)
        self.weights = _as_weights(weights, len(self.components))
        shapes = [c.structure and c.structure.shapes for c in self.components]
        alike = all(s == shapes[0] for s in shapes)
        super().__init__(self.components[0].structure if alike else None)

    @property
    def is_point(self):
        """Whether there is one component, which is a point."""
        return len(self.components) == 1 and self.components[0].is_point

    def component(self, seed: int):
        """Returns the component that draw `seed` comes from."""
        return self.components[self._index(seed)]

    def sample(self, seed):
        """Returns draw `seed`, of one of the components."""
        self._check_alike()
        return self.component(seed).sample(seed)

    def mean(self):
        """Returns the average of the means of the components."""
        self._check_alike()
        means = [c.mean() for c in self.components]
        return [
            np.tensordot(self.weights, np.stack(m), 1).astype(m[0].dtype)
            for m in zip(*means, strict=True)
        ]

    def variables(self, model):
        """Returns the variables that all components cover."""
        self._check_alike()
        lists = [c.variables(model) for c in self.components]
        if len({tuple(map(id, variables)) for variables in lists}) > 1:
            raise self._unlike()
        return lists[0]

    def needs_batch_norm(self, seed):
        """As the component says."""
        return self.component(seed).needs_batch_norm(seed)

    def seeds(self, seed, samples):
        """Each component gets its share of the draws, to within one.

        Inside a component they fall at random, also on members of an ensemble.
        """
        samples = 1 if self.is_point else samples
        rng = generator(seed, 1)
        edges = np.append(0.0, np.cumsum(self.weights))
        edges[-1] = 1.0
        counts = np.diff(np.floor(edges * samples + rng.random()).astype(int))
        start = int(rng.integers(2**62))
        seeds = []
        for candidate in itertools.count(start):
            if len(seeds) == samples:
                return seeds
            index = self._index(candidate)
            if counts[index]:
                counts[index] -= 1
                seeds.append(candidate)

    def check(self, model):
        """Checks every component."""
        for i, component in enumerate(self.components):
            try:
                component.check(model)
            except ValueError as error:
                raise ValueError(f"components[{i}]: {error}") from error

    def assignments(self, model, seed):
        """As the component does."""
        return self.component(seed).assignments(model, seed)

    def batch_assignments(self, model, seed, batch_index):
        """As the component does."""
        component = self.component(seed)
        return component.batch_assignments(model, seed, batch_index)

    def drops(self, seed):
        """As the component says."""
        return self.component(seed).drops(seed)

    @contextlib.contextmanager
    def drawing(self, model):
        """Opens the components one at a time, as their turn comes."""
        self.check(model)
        with contextlib.ExitStack() as current:
            # A component may change more than weights, and undoes it on exit.
            def draw(seed):
                current.close()
                component = self.component(seed)
                current.enter_context(component.drawing(model))(seed)

            yield draw

    def get_state(self):
        """Returns all arguments."""
        state = super().get_state()
        state["weights"] = self.weights.tolist()
        state["components"] = [c.get_state() for c in self.components]
        return state

    @classmethod
    def from_state(cls, state):
        """Returns the posterior that `get_state` described."""
        components = [from_state(s) for s in state["components"]]
        return cls(components, state["weights"])

    def _facts(self):
        return {**super()._facts(), "components": self.components}

    def _index(self, seed):
        # A stream of its own: components use the others.
        edges = np.cumsum(self.weights)[:-1]
        return int(np.searchsorted(edges, generator(seed, 2).random(), "right"))

    def _check_alike(self):
        if self.structure is None:
            raise self._unlike()

    def _unlike(self):
        kinds = [type(c).__name__ for c in self.components]
        return ValueError(
            "The components of a mixture must cover the same variables for "
            "its draws to be lists of arrays. Use `sampled(model, seed)`, "
            f"which works for all. Received: components={kinds}"
        )


def _check_component(position, component):
    if isinstance(component, Posterior):
        return
    advice = ""
    # Asked of the class: of a callback, it may raise.
    if hasattr(type(component), "posterior"):
        advice = " Pass its `.posterior`."
    raise ValueError(
        f"`components` must be posteriors.{advice} Received: "
        f"components[{position}] of type {type(component).__name__}"
    )


def _as_weights(weights, count):
    """Returns the weights of the components, with sum 1."""
    if weights is None:
        weights = [1.0] * count
    if isinstance(weights, np.ndarray):
        weights = weights.tolist()
    if not (
        isinstance(weights, (list, tuple))
        and len(weights) == count
        and all(isinstance(w, numbers.Real) and w > 0 for w in weights)
        and math.isfinite(sum(weights))
    ):
        raise ValueError(
            "`weights` must be one positive, finite number for each of the "
            f"{count} components; leave out what has no weight. Received: "
            f"weights={weights}"
        )
    return np.asarray(weights, "float64") / sum(weights)
