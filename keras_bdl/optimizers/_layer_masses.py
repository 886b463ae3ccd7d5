"""Masses of a sampler, one per variable, estimated from the gradients."""

import math
from typing import Any

import numpy as np
from keras import ops

# Without these bounds, extreme gradients could freeze a variable or make it
# diverge.
_SMALLEST, _LARGEST = 1e-4, 1e4


class LayerMasses:
    """Masses in proportion to the mean square of each variable's gradients.

    Near a mode, the mean square of the gradient of U is proportional to the
    curvature `U''`: the exact gradient has the mean square `T U''`, and
    minibatch noise adds a part proportional to `U''`. The mass of variable v is

        m_v = m f_v,  f_v ~ mean(G_v^2),  prod_v f_v^(n_v / sum n) = 1    (1)

    where `n_v` is the number of weights of v. A variable whose gradients are
    all zero has `f_v = 1`. With these masses, all variables oscillate at about
    the same frequency, and the average weight moves as fast as with one mass m.
    When a mass changes, the speed limit and the momentum change as well, so
    that `m c^2` and the distribution of the kinetic energy `K(p)` stay the
    same,

        c_v = c / sqrt(f_v),   p_v <- p_v sqrt(f_v_new / f_v_old)         (2)

    A chain whose masses depend on its own past is no Markov chain. Therefore
    each new estimate has a smaller weight, `2 / (k + 1)` for the k-th. This
    average forgets the start and converges: in the limit, samples follow the
    target. To make samples exact after the burn-in, set `end_step`, the first
    step that no longer changes the masses, to the end of the burn-in.
    """

    def __init__(
        self,
        optimizer: Any,
        variables: list,
        *,
        every: int,
        end_step: int | None,
    ):
        self._optimizer = optimizer
        self._every = every
        self._end_step = end_step
        sizes = np.array([math.prod(v.shape) for v in variables], "float32")
        self._shares = sizes / sizes.sum()
        self._squares = [
            optimizer.add_variable((), name=f"squared_gradient_{i}")
            for i in range(len(sizes))
        ]
        # All replicas assign the same value, as Keras does for `iterations`.
        self._factors, self._former_factors = (
            optimizer.add_variable(
                (len(sizes),),
                initializer="ones",
                dtype="float32",
                aggregation="only_first_replica",
                name=name,
            )
            for name in ("mass_factors", "former_mass_factors")
        )

    def update(self) -> None:
        """Sets new masses every `every` steps; called after each step."""
        steps = self._optimizer.iterations
        due = self._starts_window(steps)
        if self._end_step is not None:
            due = due & (steps <= self._end_step)
        factors = ops.cast(self._factors, "float32")
        self._former_factors.assign(factors)
        number = ops.cast(steps, "float32") / self._every
        weight = 2.0 / (ops.maximum(number, 1.0) + 1.0)
        new = ops.power(factors, 1.0 - weight) * self._estimate() ** weight
        self._factors.assign(ops.where(due, new, factors))

    def observe(self, index: int, gradient: Any) -> None:
        """Adds the gradient of U for one variable to the estimate."""
        square = ops.mean(ops.square(gradient))
        starts = self._starts_window(self._optimizer.iterations)
        before = ops.cast(self._squares[index], "float32")
        self._optimizer.assign(
            self._squares[index],
            ops.where(starts, square, before + square),
        )

    def factor(self, index: int) -> Any:
        """Returns `f_v`."""
        return ops.cast(self._factors, "float32")[index]

    def growth(self, index: int) -> Any:
        """Returns `f_v_new / f_v_old`, which is 1 in most steps."""
        return self.factor(index) / self._former_factors[index]

    def _starts_window(self, steps: Any) -> Any:
        return ops.equal(ops.mod(steps, self._every), 0)

    def _estimate(self) -> Any:
        """Returns the mass factors f_v of (1)."""
        squares = ops.stack([ops.cast(s, "float32") for s in self._squares])
        moved = squares > 0
        logs = ops.log(ops.where(moved, squares, 1.0))
        shares = ops.where(moved, self._shares, 0.0)
        shares = shares / ops.maximum(ops.sum(shares), 1e-30)
        factors = ops.exp(logs - ops.sum(logs * shares))
        return ops.where(moved, ops.clip(factors, _SMALLEST, _LARGEST), 1.0)
