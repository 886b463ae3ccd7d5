"""Mixtures of posteriors."""

import contextlib
import itertools
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_number
from keras_bdl._random._seeds import generator
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.posteriors._posterior import from_state
from keras_bdl.posteriors._stacked import Stacked
from keras_bdl.posteriors._stacked import stacked_of

# Samples of a component that are in memory beside those of the mixture.
_AT_ONCE = 4


class Mixture(Posterior):
    """A mixture of posteriors, such as multi-SWAG.

    Use this class to combine the posteriors of several trainings. Each sample
    is a sample of one component, which is drawn with a probability proportional
    to its weight. Components may be of any kind. If components cover different
    variables, use `sampled`, `drawing` or `keras_bdl.predict`; `sample` and
    `mean` raise an error.

    Args:
        components: Posteriors over the weights of one architecture.
        weights: Positive numbers. Only their ratios count. Defaults to
            `None`, equal weights.

    Example:

    ```python
    other = posterior.sample(0)  # stands for the weights of a second training
    mixture = keras_bdl.posteriors.Mixture(
        [posterior, keras_bdl.posteriors.Ensemble([other])], weights=[4, 1]
    )
    prediction = keras_bdl.predict(model, x_test, mixture, samples=5)
    ```
    """

    can_be_linearized = False

    def __init__(
        self,
        components: Sequence[Posterior],
        weights: Sequence[float] | ArrayLike | None = None,
    ):
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
    def is_point(self) -> bool:
        """Whether the mixture has one component with equal samples."""
        return len(self.components) == 1 and self.components[0].is_point

    def component(self, seed: int) -> Posterior:
        """Returns the component of a sample.

        Args:
            seed: Selects the sample.
        """
        return self.components[self._index(seed)]

    def sample(self, seed: int) -> list[np.ndarray]:
        """Returns a sample of one of the components."""
        self._check_alike()
        return self.component(seed).sample(seed)

    def mean(self) -> list[np.ndarray]:
        """Returns the weighted average of the means of the components."""
        self._check_alike()
        means = [c.mean() for c in self.components]
        return [
            np.tensordot(self.weights, np.stack(m), 1).astype(m[0].dtype)
            for m in zip(*means, strict=True)
        ]

    def variables(self, model: keras.Model) -> list:
        """Returns the variables that all components cover."""
        self._check_alike()
        lists = [c.variables(model) for c in self.components]
        if len({tuple(map(id, variables)) for variables in lists}) > 1:
            raise self._unlike()
        return lists[0]

    def needs_batch_norm(self, seed: int) -> bool:
        """Returns whether the component needs new BatchNorm statistics."""
        return self.component(seed).needs_batch_norm(seed)

    def seeds(self, seed: int, samples: int) -> list[int]:
        """Returns seeds that give each component its share of the samples.

        The shares are exact to within one sample. The samples of one component
        are random. For an `Ensemble`, the members are also random: a member may
        occur twice.
        """
        samples = 1 if self.is_point else samples
        rng = generator(seed, 1)
        edges = np.append(0.0, np.cumsum(self.weights))
        edges[-1] = 1.0
        counts = np.diff(np.floor(edges * samples + rng.random()).astype(int))
        start = int(rng.integers(2**62))
        candidates = itertools.count(start)
        seeds: list[int] = []
        while len(seeds) < samples:
            candidate = next(candidates)
            index = self._index(candidate)
            if counts[index]:
                counts[index] -= 1
                seeds.append(candidate)
        return seeds

    def check(self, model: keras.Model) -> None:
        """Raises an error if any component does not belong to the model."""
        for i, component in enumerate(self.components):
            try:
                component.check(model)
            except ValueError as error:
                raise ValueError(f"components[{i}]: {error}") from error

    def assignments(
        self, model: keras.Model, seed: int
    ) -> list[tuple[Any, Any]]:
        """Returns the values that the component sets."""
        return self.component(seed).assignments(model, seed)

    def stacked(
        self,
        model: keras.Model,
        seeds: Sequence[int],
        *,
        centered: bool = False,
    ) -> Stacked:
        """Returns samples, those of each component drawn together."""
        del centered  # a mixture is not linearised
        rows: dict[int, list[int]] = {}
        for row, seed in enumerate(seeds):
            rows.setdefault(self._index(seed), []).append(row)

        def samples() -> Iterator[tuple[int, list[tuple[Any, Any]]]]:
            for index, own in rows.items():
                for start in range(0, len(own), _AT_ONCE):
                    part = own[start : start + _AT_ONCE]
                    found = self.components[index].stacked(
                        model, [seeds[row] for row in part]
                    )
                    for k, row in enumerate(part):
                        yield row, found.sample(k)

        return stacked_of(samples(), len(seeds))

    def batch_assignments(
        self, model: keras.Model, seed: int, batch_index: int
    ) -> list[tuple[Any, Any]]:
        """Returns the values that the component sets before a batch."""
        component = self.component(seed)
        return component.batch_assignments(model, seed, batch_index)

    def drops(self, seed: int) -> bool:
        """Returns whether dropout must be on for the component."""
        return self.component(seed).drops(seed)

    @contextlib.contextmanager
    def drawing(self, model: keras.Model) -> Iterator[Callable[[int], None]]:
        """Puts several samples into the model, one after the other.

        The method `drawing` of the selected component puts in a sample. Its
        changes are undone before the next sample.
        """
        self.check(model)
        with contextlib.ExitStack() as current:
            # The end of the block restores all that the component changed.
            def draw(seed: int) -> None:
                current.close()
                component = self.component(seed)
                current.enter_context(component.drawing(model))(seed)

            yield draw

    def get_state(self) -> dict[str, Any]:
        """Returns all arguments."""
        state = super().get_state()
        state["weights"] = self.weights.tolist()
        state["components"] = [c.get_state() for c in self.components]
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Mixture":
        """Returns the posterior that `get_state` described."""
        components = [from_state(s) for s in state["components"]]
        return cls(components, state["weights"])

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "components": self.components}

    def _index(self, seed: int) -> int:
        # Stream 2 of the seed selects the component; the component draws its
        # sample from other streams.
        edges = np.cumsum(self.weights)[:-1]
        return int(np.searchsorted(edges, generator(seed, 2).random(), "right"))

    def _check_alike(self) -> None:
        if self.structure is None:
            raise self._unlike()

    def _unlike(self) -> ValueError:
        kinds = [type(c).__name__ for c in self.components]
        return ValueError(
            "The components of a `Mixture` must cover the same variables. "
            "Otherwise a sample is no list of arrays; use "
            f"`sampled(model, seed)`. Received: components={kinds}"
        )


def _check_component(position: int, component: Any) -> None:
    if isinstance(component, Posterior):
        return
    advice = ""
    # The property of a callback may raise an error, so check the class.
    if hasattr(type(component), "posterior"):
        advice = " Pass its `.posterior`."
    raise ValueError(
        f"`components` must be posteriors.{advice} Received: "
        f"components[{position}] of type {type(component).__name__}"
    )


def _as_weights(weights: Any, count: int) -> np.ndarray:
    """Returns the weights of the components, normalised to sum 1."""
    if weights is None:
        weights = [1.0] * count
    if isinstance(weights, np.ndarray):
        weights = weights.tolist()
    weights = as_list("weights", weights, "numbers")
    for i, weight in enumerate(weights):
        check_number(f"weights[{i}]", weight, above=0.0)
    if len(weights) != count or not math.isfinite(sum(weights)):
        raise ValueError(
            f"`weights` must have one number for each of the {count} "
            f"components, with a finite sum. Received: weights={weights}"
        )
    return np.asarray(weights, "float64") / sum(weights)
