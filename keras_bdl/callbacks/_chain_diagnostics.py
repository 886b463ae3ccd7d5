"""The callback `ChainDiagnostics`, which measures temperatures of a chain."""

import functools
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_verbose
from keras_bdl._backend import compiled
from keras_bdl._data._dataset_size import guard_loss
from keras_bdl._keras import inner_optimizer
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.optimizers._momentum_samplers import MomentumSampler
from keras_bdl.optimizers._sampler import Sampler

COLUMNS = {
    "kinetic T": "kinetic_temperature",
    "from": "kinetic_temperature_low",
    "to": "kinetic_temperature_high",
    "configur. T": "configurational_temperature",
}


class ChainDiagnostics(StatefulCallback):
    """Compares two measured temperatures of a chain with its temperature T.

    Use it with a sampler of `keras_bdl`, to see whether the steps are too long
    and whether the chain has reached equilibrium. The energy U is the negative
    log posterior. In equilibrium at temperature T, for every weight w with
    momentum p and kinetic energy K,

        E[p K'(p)] = T        kinetic temperature                         (1)
        E[w dU/dw] = T        configurational temperature                 (2)

    Equation (2) needs a density that vanishes at infinity. Directions that the
    likelihood does not determine therefore need a proper prior.

    The kinetic temperature (1) is measured at the end of each epoch. For each
    variable, (1) should lie in a band that depends on the number of weights.
    If the share of variables inside their bands is below `confidence`, the
    steps are too long, or the gradients have noise that no thermostat removes.

    The configurational temperature (2) is the mean over the steps of the
    epoch. The table marks a variable of n weights if the distance of (2) from T
    is more than T/2 and more than `5 T sqrt(2 / n)`. The number
    `T sqrt(2 / n)` is the standard deviation of (2) for one sample from a
    Gaussian posterior. A marked variable moves too slowly, or has not reached
    equilibrium.

    Every epoch adds the logs below. Put the callback before
    `keras.callbacks.TensorBoard` and `CSVLogger`, so that they write the logs:

    - `kinetic_temperature`: (1) over all weights;
    - `kinetic_in_band`: share of variables whose (1) lies inside their band;
    - `configurational_temperature`: (2) over all weights;
    - with `per_variable`, (1), its band and (2) of each variable, such as
      `kinetic_temperature/dense/kernel`.

    `SGLD` has no momenta: for `SGLD`, the callback measures only (2). With the
    callback, TensorFlow traces the training step once more.

    Args:
        per_variable: Whether to log each variable. The table always has all
            variables. Defaults to `False`.
        confidence: Probability that (1) of a variable in equilibrium lies
            inside its band. Defaults to `0.99`.
        verbose: `1` to print the table after training, `0` for silence.
            Defaults to `1`.

    Example:

    ```python
    model.compile(keras_bdl.ATMC(1e-3, dataset_size=64), loss=loss)
    diagnostics = keras_bdl.callbacks.ChainDiagnostics(verbose=0)
    model.fit(train, epochs=2, callbacks=[diagnostics])
    print(diagnostics.table())
    ```

    Reference:
        - Wenzel et al., [How Good is the Bayes Posterior in Deep Neural
          Networks Really?](https://arxiv.org/abs/2002.02405), appendix I
    """

    _of_fit = ("_sampler", "_virials", "_kinetic_temperatures")

    def __init__(
        self,
        *,
        per_variable: bool = False,
        confidence: float = 0.99,
        verbose: int = 1,
    ) -> None:
        super().__init__()
        self.per_variable = check_bool("per_variable", per_variable)
        self.confidence = check_number(
            "confidence", confidence, above=0, below=1
        )
        self.verbose = check_verbose(verbose)
        self.rows: list[dict] = []
        self._virials: Any = None
        self._first_step = 0

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Makes the sampler keep the sums of (2)."""
        sampler = inner_optimizer(self.model)
        if not isinstance(sampler, Sampler):
            raise ValueError(
                "`ChainDiagnostics` needs a sampler of `keras_bdl` as the "
                "optimizer, such as `keras_bdl.ATMC`. "
                f"Received: optimizer={sampler!r}"
            )
        if not self.model.built:
            raise ValueError(
                "`ChainDiagnostics` needs a model that is built before `fit`. "
                "Give the model a `keras.Input`, or call it on one batch. "
                f"Received: model={self.model.name!r}"
            )
        self.keep_to_one_model()
        self.refuse_frozen_model()
        guard_loss(self.model, [sampler])
        self._sampler = sampler
        with self.model.distribute_strategy.scope():
            if not sampler.built:
                sampler.build(self.model.trainable_variables)
            self._virials = Virials(len(sampler.sampled_variables))
        sampler.virials = self._virials
        self.model.make_train_function(force=True)
        self._kinetic_temperatures = None
        if isinstance(sampler, MomentumSampler):
            self._kinetic_temperatures = compiled(sampler.kinetic_temperatures)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Sets the sums of (2) to zero."""
        self._first_step = self._steps()
        self._virials.assign(np.zeros(len(self._virials.sums)))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Measures and logs the temperatures."""
        self.rows = self._measure()
        if logs is not None:
            logs.update(self._logs())

    def table(self) -> str:
        """Returns the temperatures of the last epoch, one line per variable."""
        if not self.rows:
            raise RuntimeError(
                "`ChainDiagnostics` has measured no epoch. Pass it to "
                "`fit(callbacks=[...])` first."
            )
        width = max(len(row["variable"]) for row in self.rows) + 2
        lines = [
            "variable".ljust(width)
            + "".join(head.rjust(14) for head in ("weights", *COLUMNS))
        ]
        for row in self.rows:
            cells = [f"{row['weights']}"]
            cells += [f"{row[name]:.3f}" for name in COLUMNS.values()]
            line = row["variable"].ljust(width)
            line += "".join(c.rjust(14) for c in cells)
            line += "" if row["in_band"] else "  out of its band"
            lines.append(line + ("  far from T" if _is_far(row) else ""))
        return "\n".join([*lines, *self._verdict()])

    def on_train_end(self, logs: dict | None = None) -> None:
        """Ends the measurement, and prints the table if `verbose` is 1.

        The sampler no longer adds to the sums of (2).
        """
        self._sampler.virials = None
        self.model.make_train_function(force=True)
        if self.verbose and self.rows:
            print(self.table())

    def get_state(self) -> dict[str, Any]:
        """Returns the sums of this epoch and the rows of the last table."""
        return {
            "sums": [v.numpy() for v in self._virials.sums],
            "first_step": self._first_step,
            "rows": self.rows,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._virials.assign(state["sums"])
        self._first_step = state["first_step"]
        self.rows = state["rows"]

    def _steps(self) -> int:
        return int(self._sampler.iterations.numpy())

    def _measure(self) -> list:
        sampler = self._sampler
        steps = self._steps() - self._first_step
        sums = np.array([float(v.numpy()) for v in self._virials.sums])
        configurational = sums / steps if steps else np.full_like(sums, np.nan)
        kinetic = np.full_like(sums, np.nan)
        if self._kinetic_temperatures is not None:
            kinetic = self._kinetic_temperatures().numpy()
        return [
            self._row(variable, *temperatures)
            for variable, *temperatures in zip(
                sampler.sampled_variables, kinetic, configurational, strict=True
            )
        ]

    def _row(
        self, variable: Any, kinetic: Any, configurational: Any
    ) -> dict[str, Any]:
        low, high = self._band(math.prod(variable.shape))
        return {
            "variable": variable.path,
            "weights": math.prod(variable.shape),
            "kinetic_temperature": float(kinetic),
            "kinetic_temperature_low": low,
            "kinetic_temperature_high": high,
            "configurational_temperature": float(configurational),
            "temperature": float(self._sampler.temperature_now()),
            "in_band": bool(low <= kinetic <= high or math.isnan(low)),
        }

    def _band(self, num_weights: int) -> Any:
        temperature = float(self._sampler.temperature_now())
        if self._kinetic_temperatures is None:
            return math.nan, math.nan
        if temperature == 0:
            return 0.0, 0.0
        energy = self._sampler.rest_energy
        energy = energy and energy / temperature
        band = kinetic_band(num_weights, self.confidence, energy)
        return tuple(float(temperature * end) for end in band)

    def _verdict(self) -> list:
        """Returns lines that warn if (2) over all weights is far from T."""
        weights = [row["weights"] for row in self.rows]
        name = "configurational_temperature"
        mean = np.average([row[name] for row in self.rows], weights=weights)
        row = {**self.rows[0], "weights": sum(weights), name: mean}
        if not _is_far(row):
            return []
        return [
            f"The configurational temperature over all weights, {mean:.3f}, "
            f"is far from T = {row['temperature']:g}: the chain has not "
            "reached equilibrium. Train longer or take longer steps. With a "
            "flat prior there may be no equilibrium."
        ]

    def _logs(self) -> Any:
        weights = [row["weights"] for row in self.rows]
        names = ["configurational_temperature"]
        if self._kinetic_temperatures is not None:
            names.append("kinetic_temperature")
        logs = {}
        for name in names:
            values = [row[name] for row in self.rows]
            logs[name] = float(np.average(values, weights=weights))
        if self._kinetic_temperatures is not None:
            in_band = [row["in_band"] for row in self.rows]
            logs["kinetic_in_band"] = float(np.mean(in_band))
        if self.per_variable:
            for row in self.rows:
                for name in COLUMNS.values():
                    logs[f"{name}/{row['variable']}"] = row[name]
        return logs


def _is_far(row: Any) -> Any:
    """Returns whether (2) of a variable is far from T."""
    temperature = row["temperature"]
    distance = abs(row["configurational_temperature"] - temperature)
    error = temperature * math.sqrt(2 / row["weights"])
    return temperature > 0 and distance > max(temperature / 2, 5 * error)


class Virials:
    """Sums of `w dU/dw` over the steps, one number for each variable.

    Each step adds the mean of `w dU/dw` over the weights of the variable. At
    temperature T, the expectation of `w dU/dw` is T for each weight if the
    density vanishes at infinity. Gradients of minibatches suffice, because the
    weights at which a step computes its gradient do not depend on the minibatch
    of that step.
    """

    def __init__(self, num_variables: int) -> None:
        self.sums = [
            keras.Variable(0.0, dtype="float32", trainable=False)
            for _ in range(num_variables)
        ]

    def add(
        self,
        optimizer: keras.optimizers.Optimizer,
        index: int,
        variable: Any,
        gradient: Any,
    ) -> None:
        """Adds one step of one variable, given the gradient of U."""
        value = ops.cast(variable, "float32")
        optimizer.assign_add(self.sums[index], ops.mean(value * gradient))

    def assign(self, sums: Any) -> None:
        """Sets the sums."""
        for variable, value in zip(self.sums, sums, strict=True):
            variable.assign(value)


def kinetic_band(
    num_weights: int, confidence: float, rest_energy: float | None = None
) -> tuple[float, float]:
    """Returns the interval for the mean of `p K'(p) / T` over some weights.

    The expectation is 1. Without a speed limit, `p K'(p) / T = p^2 / (m T)` is
    chi-square with one degree of freedom, and its mean over n weights is a
    gamma variable of shape n/2. With a speed limit c, the function uses a gamma
    variable with the variance of the mean.
    """
    from scipy.stats import gamma

    variance = 2.0 if rest_energy is None else _variance(float(rest_energy))
    shape = num_weights / variance
    tail = (1.0 - confidence) / 2.0
    return tuple(gamma.ppf([tail, 1.0 - tail], shape, scale=1.0 / shape))


@functools.cache
def _variance(a: Any) -> Any:
    """Returns the variance of `p K'(p) / T` for a weight with a speed limit.

    With `a = m c^2 / T` and `p = m c sinh(r)`, we have `K/T = a (cosh r - 1)`
    and `p K'/T = a sinh r tanh r`. The density of r is proportional to
    `exp(-K/T) cosh r`.
    """
    from scipy.integrate import trapezoid

    r = np.linspace(0.0, np.arccosh(1.0 + 60.0 / a), 20_001)
    density = np.exp(-a * (np.cosh(r) - 1.0)) * np.cosh(r)
    density /= trapezoid(density, r)
    square = np.square(a * np.sinh(r) * np.tanh(r))
    return float(trapezoid(density * square, r)) - 1.0
