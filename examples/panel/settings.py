"""The settings of each method that compete with its defaults.

The first of each is the default. The others are arguments of the functions in
`comparison/methods.py`.
"""

import itertools


def _grid(**axes):
    """Returns all combinations. A value of `None` leaves the default."""
    return [
        {name: v for name, v in zip(axes, values, strict=True) if v is not None}
        for values in itertools.product(*axes.values())
    ]


_NATURAL = _grid(curvature=(None, 0.3, 3.0), learning_rate=(None, 0.02, 0.1))
_ADAM = _grid(learning_rate=(None, 1e-3, 1e-2))
_FIXED = _grid(stddev=(None, 0.015, 0.06), learning_rate=(None, 1e-3))
_SAMPLER = _grid(warm=(None, True), average_speed=(None, 3e-4, 3e-3))

GRIDS = {
    "SGD": _grid(learning_rate=(None, 0.01, 0.2)),
    "Adam": _ADAM,
    "mean-field": _ADAM,
    "Radial": _ADAM,
    "IVON": _NATURAL,
    "VOGN": _NATURAL,
    "Noisy K-FAC": _NATURAL,
    "sampled VI": _FIXED,
    "Taylor VI": _FIXED,
    "ATMC": _SAMPLER,
    "SGNHT": _SAMPLER,
}
