"""One mass a variable, learned from its gradients."""

import math

import numpy as np
from keras import ops

# One odd variable must neither stand still nor fly away.
SMALLEST, LARGEST = 1e-4, 1e4


class LayerMasses:
    """Masses in proportion to the mean square of each variable's gradients.

    Near a mode the mean square of the gradient of U goes as its curvature:
    it is `T U''` for the exact gradient of a posterior, and the noise of the
    minibatches is in the same proportion. With the mass of variable v

        m_v = m f_v,  f_v ~ mean(G_v^2),  prod_v f_v^(n_v / sum n) = 1    (1)

    where `n_v` is its size (and `f_v = 1` without any gradient), all variables
    oscillate at about one frequency, and the average weight moves as fast as
    before. The speed limit goes along so that `m c^2` stays, and so does each
    momentum,

        c_v = c / sqrt(f_v),   p_v <- p_v sqrt(f_v_new / f_v_old)         (2)

    which leaves the distribution of the energy `K(p)` as it was.

    A chain whose masses follow its own past is no Markov chain. So each new
    estimate counts less, `2 / (k + 1)` for the k-th, which is an average that
    forgets the begin: masses settle, and the samples are those of the target
    in the limit. Stop with the burn-in to be exact from there on.

    Args:
        optimizer: The sampler, which owns the variables made here.
        variables: What it samples.
        every: Steps from one estimate to the next.
        until: The last step at which masses may change, or `None`.
    """

    def __init__(self, optimizer, variables, every: int, until: int | None):
        self._optimizer = optimizer
        self._every = every
        self._until = until
        sizes = np.array([math.prod(v.shape) for v in variables], "float32")
        self._shares = sizes / sizes.sum()
        self._squares = [
            optimizer.add_variable((), name=f"squared_gradient_{i}")
            for i in range(len(sizes))
        ]
        # Assigned by all replicas alike, as Keras does with `iterations`.
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

    def update(self):
        """Takes new masses if they are due; after a step of all variables."""
        steps = self._optimizer.iterations
        due = self._starts_window(steps)
        if self._until is not None:
            due = due & (steps <= self._until)
        factors = ops.cast(self._factors, "float32")
        self._former_factors.assign(factors)
        number = ops.cast(steps, "float32") / self._every
        weight = 2.0 / (ops.maximum(number, 1.0) + 1.0)
        new = ops.power(factors, 1.0 - weight) * self._estimate() ** weight
        self._factors.assign(ops.where(due, new, factors))

    def observe(self, index: int, gradient):
        """Takes the gradient of U of one variable into account."""
        square = ops.mean(ops.square(gradient))
        starts = self._starts_window(self._optimizer.iterations)
        before = ops.cast(self._squares[index], "float32")
        self._optimizer.assign(
            self._squares[index],
            ops.where(starts, square, before + square),
        )

    def factor(self, index: int):
        """Returns `f_v`."""
        return ops.cast(self._factors, "float32")[index]

    def growth(self, index: int):
        """Returns `f_v_new / f_v_old`, which is 1 at most steps."""
        return self.factor(index) / self._former_factors[index]

    def _starts_window(self, steps):
        return ops.equal(ops.mod(steps, self._every), 0)

    def _estimate(self):
        """Returns (1)."""
        squares = ops.stack([ops.cast(s, "float32") for s in self._squares])
        moved = squares > 0
        logs = ops.log(ops.where(moved, squares, 1.0))
        shares = ops.where(moved, self._shares, 0.0)
        shares = shares / ops.maximum(ops.sum(shares), 1e-30)
        factors = ops.exp(logs - ops.sum(logs * shares))
        return ops.where(moved, ops.clip(factors, SMALLEST, LARGEST), 1.0)
