"""Report on the noise of a gradient."""

import dataclasses
import math

import numpy as np

from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True)
class GradientVarianceReport(Report):
    """Variance of a gradient over draws. Made by `gradient_variance`.

    For each group of entries there are

    - `size`: how many entries it has,
    - `variance`: the mean of their variances,
    - `variance_error`: the standard error of this number, NaN for two draws,
    - `signal`: the mean of the squares of their true gradients, an unbiased
      estimate, which may be negative,
    - `snr`: signal-to-noise ratio, the root of signal by variance; 0 for a
      negative signal, NaN where there is neither signal nor noise.

    Attributes:
        draws: Number of draws.
        examples: Number of examples in the batch.
        seed: Selected the draws.
        means: The numbers of all means of the model.
        rhos: The numbers of all rhos, with `stddev = softplus(rho)`.
        layers: Dict from the name of a layer to a dict of `means` and `rhos`.
        variables: Dict from the name of a variable to its numbers.
    """

    draws: int
    examples: int
    seed: int
    means: dict
    rhos: dict
    layers: dict
    variables: dict

    @classmethod
    def of(cls, names, sizes, squares, signals, examples, seed):
        """Returns the report on what was added up.

        Args:
            names: A triple of layer, variable and kind for each variable.
            sizes: The number of entries of each.
            squares: Array `(draws - 1, variables)` of the squared deviations.
            signals: The square of the mean gradient of each.
            examples: Number of examples in the batch.
            seed: Selected the draws.
        """

        def numbers(chosen):
            places = [i for i, name in enumerate(names) if chosen(*name)]
            return _numbers(
                squares[:, places].sum(1),
                sum(signals[i] for i in places),
                sum(sizes[i] for i in places),
            )

        return cls(
            draws=len(squares) + 1,
            examples=examples,
            seed=seed,
            means=numbers(lambda layer, name, kind: kind == "means"),
            rhos=numbers(lambda layer, name, kind: kind == "rhos"),
            layers={
                one: {
                    of: numbers(lambda *n, key=(one, of): n[::2] == key)
                    for of in ("means", "rhos")
                }
                for one in dict.fromkeys(layer for layer, _, _ in names)
            },
            variables={
                one: numbers(lambda layer, name, kind, one=one: name == one)
                for _, one, _ in names
            },
        )

    def title(self) -> str:
        """Returns the first line."""
        return (
            "Gradient of the negative log-likelihood of "
            f"{self.examples} examples over {self.draws} draws"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        return [
            (title, self._rows(kind))
            for kind, title in (
                ("means", "With respect to the means"),
                ("rhos", "With respect to the rhos, stddev = softplus(rho)"),
            )
        ]

    def _rows(self, kind):
        rows = {name: of[kind] for name, of in self.layers.items()}
        if len(rows) > 1:
            rows["all of these"] = getattr(self, kind)
        return [
            ["", "variance", "error", "snr", "entries"],
            *(
                [
                    name,
                    of["variance"],
                    of["variance_error"],
                    of["snr"],
                    str(of["size"]),
                ]
                for name, of in rows.items()
            ),
        ]


def _numbers(squares, signal, size):
    squares = squares / size
    variance = float(squares.mean())
    signal = signal / size - variance / (len(squares) + 1)  # (4)
    return {
        "size": size,
        "variance": variance,
        "variance_error": _standard_error(squares),
        "signal": signal,
        "snr": _ratio(signal, variance),
    }


def _standard_error(values):
    if len(values) < 2:
        return math.nan
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def _ratio(signal, variance):
    if variance > 0 or math.isnan(variance):
        return math.sqrt(max(signal, 0.0) / variance)
    return math.inf if signal > 0 else math.nan
