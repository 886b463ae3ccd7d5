"""Variance of the likelihood gradient over posterior samples."""

import contextlib
import dataclasses
import math
import weakref
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_verbose
from keras_bdl._backend import value_and_grad
from keras_bdl._random._seeds import sequence
from keras_bdl._reports import Report
from keras_bdl.diagnostics._training_loss import check_loss
from keras_bdl.diagnostics._training_loss import compiled_loss
from keras_bdl.diagnostics._training_loss import loss_reference
from keras_bdl.diagnostics._training_loss import mean_loss
from keras_bdl.distribute._replicas import restored
from keras_bdl.layers._variational import variational_layers
from keras_bdl.posteriors._mc_dropout import seed_generators
from keras_bdl.prediction._stateless_call import ModelCache
from keras_bdl.prediction._stateless_call import check_model
from keras_bdl.prediction._stateless_call import traced


@dataclasses.dataclass(frozen=True)
class GradientVarianceReport(Report):
    """Variance of a gradient over posterior samples, by `gradient_variance`.

    The means and the rhos (`stddev = softplus(rho)`) are the parameters of the
    weight posteriors. For each group of entries of their gradients, the report
    has

    - `size`: number of entries,
    - `variance`: mean of the variances of the entries,
    - `variance_error`: standard error of `variance`, NaN for two samples,
    - `signal`: estimate of the mean square of the expected gradient, the mean
      over infinitely many samples. The estimate is unbiased and may be
      negative,
    - `snr`: signal-to-noise ratio, `sqrt(signal / variance)`. The ratio is 0
      for a negative signal, infinite if only the variance is zero, and NaN if
      both are zero.

    Attributes:
        num_samples: Number of posterior samples.
        examples: Number of examples in the batch.
        seed: Seed of the samples.
        means: These numbers for all means of the model.
        rhos: These numbers for all rhos of the model.
        layers: Dict from the name of a layer to a dict of `means` and `rhos`.
        variables: Dict from the name of a variable to its numbers.
    """

    num_samples: int
    examples: int
    seed: int
    means: dict
    rhos: dict
    layers: dict
    variables: dict

    def title(self) -> str:
        return (
            "Gradient of the negative log-likelihood of "
            f"{self.examples} examples over {self.num_samples} samples"
        )

    def sections(self) -> list:
        return [
            (title, self._rows(kind))
            for kind, title in (
                ("means", "With respect to the means"),
                ("rhos", "With respect to the rhos, stddev = softplus(rho)"),
            )
        ]

    def _rows(self, kind: str) -> list:
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


def gradient_variance(
    model: keras.Model,
    data: tuple[ArrayLike, ArrayLike],
    *,
    samples: int = 100,
    loss: Loss | None = None,
    seed: int = 0,
    verbose: int | str = "auto",
) -> GradientVarianceReport:
    """Measures the noise of weight sampling in the gradient.

    Use it to compare variational layers, initial deviations or estimators:
    less noise means faster training. With g_s the gradient of the mean
    negative log-likelihood of one batch at posterior sample s of all weights,
    the report has, for the means and the rhos of every tensor, of every layer
    and of all layers,

        m_s = m_(s-1) + (g_s - m_(s-1)) / s                               (1)
        e_s = |g_s - m_(s-1)|^2 (s - 1) / (s size),   s = 2 ... S         (2)
        variance = 1/(S-1) sum_s e_s                                      (3)
        signal = |m_S|^2 / size - variance / S                            (4)

    (3) averages the unbiased variances of the entries. The expectation of (4)
    is the mean square of the expected gradient. `snr` is
    `sqrt(signal / variance)`. Memory does not grow with `samples`.

    The gradient is that of the likelihood alone, without the KL and other
    penalties. A training step with `train_samples=k` has the variance divided
    by k. The model is called with `training=True`, so other noise of training,
    such as dropout, is included. TensorFlow traces the model once for all
    samples and later calls. Afterwards the model, its seed generators and its
    BatchNorm statistics are unchanged, also after an error.

    Args:
        model: A built Keras model with variational layers.
        data: `(x, y)`, arrays of one batch.
        samples: S, number of posterior samples, at least 2. Defaults to `100`.
        loss: The negative log-likelihood, as `compile` takes it. Defaults to
            `None`, the loss that the model is compiled with.
        seed: Seed of the samples. Defaults to `0`.
        verbose: `0` for silence, `1` for a progress bar, `2` for one line.
            Defaults to `"auto"`, `1`.

    Returns:
        A `GradientVarianceReport`, which prints as a table.

    Example:

    ```python
    report = keras_bdl.diagnostics.gradient_variance(
        net, (x, y), samples=10
    )
    print(report)
    report.means["variance"], report.rhos["snr"]
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), section 5
    """
    check_model(model)
    check_count("samples", samples, at_least=2)
    gradient = likelihood_gradient_of(model, loss)
    x, y = keras.tree.map_structure(ops.convert_to_tensor, pair_of(data))
    _check_lengths(x, y)
    bar = keras.utils.Progbar(
        samples, verbose=check_verbose(verbose), unit_name="sample"
    )
    means, squares = gradient.zeros(), []
    with _left_as_it_was(model, seed):
        for sample in range(1, samples + 1):
            count = ops.convert_to_tensor(sample, "float32")
            means, square = gradient(x, y, count, means)
            squares.append(square)
            bar.update(sample)
    found = _Found(
        gradient.names,
        sizes=[math.prod(m.shape) for m in means],
        squares=np.array([s.numpy() for s in squares[1:]], "float64"),
        signals=[float(ops.sum(ops.square(m))) for m in means],
    )
    return GradientVarianceReport(
        num_samples=samples,
        examples=len(keras.tree.flatten(x)[0]),
        seed=seed,
        **found.groups(),
    )


def pair_of(data: Any) -> tuple[Any, Any]:
    """Returns the inputs and the targets of one batch."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError(
            "`data` must be `(x, y)`, arrays of one batch. "
            f"Received: data of type {type(data).__name__}"
        )
    return tuple(data)


class _Found(NamedTuple):
    """Squared deviations `(samples - 1, variables)` and squared means."""

    names: list[tuple[str, str, str]]  # layer, variable and kind
    sizes: list[int]
    squares: np.ndarray
    signals: list[float]

    def groups(self) -> dict[str, Any]:
        """Returns the numbers of all means and rhos, layers and variables."""
        kinds = ("means", "rhos")
        layers = dict.fromkeys(layer for layer, _, _ in self.names)
        return {
            **{kind: self._numbers(None, None, kind) for kind in kinds},
            "layers": {
                layer: {k: self._numbers(layer, None, k) for k in kinds}
                for layer in layers
            },
            "variables": {
                name: self._numbers(None, name, None)
                for _, name, _ in self.names
            },
        }

    def _numbers(self, *chosen: str | None) -> dict[str, Any]:
        """Returns the numbers of the variables with these names."""
        places = [
            i
            for i, names in enumerate(self.names)
            if all(c in (None, n) for c, n in zip(chosen, names, strict=True))
        ]
        size = sum(self.sizes[i] for i in places)
        squares = self.squares[:, places].sum(1) / size
        variance = float(squares.mean())  # (3)
        signal = sum(self.signals[i] for i in places) / size
        signal -= variance / (len(squares) + 1)  # (4)
        return {
            "size": size,
            "variance": variance,
            "variance_error": _standard_error(squares),
            "signal": signal,
            "snr": _ratio(signal, variance),
        }


def _standard_error(values: np.ndarray) -> float:
    if len(values) < 2:
        return math.nan
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def _ratio(signal: float, variance: float) -> float:
    if variance > 0 or math.isnan(variance):
        return math.sqrt(max(signal, 0.0) / variance)
    return math.inf if signal > 0 else math.nan


def _check_lengths(x: Any, y: Any) -> None:
    lengths = {len(a) for a in keras.tree.flatten((x, y))}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "`x` and `y` must have equally many examples, at least one. "
            f"Received: {sorted(lengths)} examples"
        )


@contextlib.contextmanager
def _left_as_it_was(model: keras.Model, seed: int) -> Iterator[Any]:
    """Seeds the samples, and restores all changed variables at the end."""
    variables = [*model.non_trainable_variables, *model.metrics_variables]
    sizes = [layer.dataset_size for layer in variational_layers(model)]
    given = [size.given for size in sizes]
    with restored(variables):
        generators = seed_generators(_keras.all_layers(model))
        for i, generator in enumerate(generators):
            key = sequence(seed, i).generate_state(2, np.uint32)
            generator.state.assign(key)
        try:
            for size in sizes:
                # The KL needs N, but does not enter the gradient.
                if not size.known:
                    size.given = 1
            yield
        finally:
            # The losses are tensors of a trace. Drop them with the trace.
            _keras.clear_losses(model)
            for size, value in zip(sizes, given, strict=True):
                size.given = value


_CACHE = ModelCache()


class LikelihoodGradient:
    """Adds the gradient at one posterior sample to the running means.

    `likelihood_gradient_of` makes one object for each model and loss.
    """

    def __init__(self, model: keras.Model, loss: Loss | None) -> None:
        self.names = _names(model)
        self._model = weakref.ref(model)
        self._loss = None if loss is None else compiled_loss(loss)
        self._function = traced(model, self._step)

    def __call__(self, x: Any, y: Any, count: Any, means: list) -> Any:
        return self._function(x, y, count, means)

    def zeros(self) -> list:
        """Returns zeros, the means before the first sample."""
        return [
            ops.zeros(v.shape, "float32") for v in _parameters(self._model())
        ]

    def _step(self, x: Any, y: Any, count: Any, means: Any) -> Any:
        model = self._model()

        def nll() -> Any:
            outputs = _keras.call_with_training(model, x, training=True)
            loss = self._loss or _keras.compile_loss(model)
            return mean_loss(loss, y, outputs)

        _, gradients = value_and_grad(nll, _parameters(model), dense=True)
        deviations = [g - m for g, m in zip(gradients, means, strict=True)]
        squares = ops.stack([ops.sum(ops.square(d)) for d in deviations])
        means = [
            m + d / count for m, d in zip(means, deviations, strict=True)
        ]  # (1)
        return means, squares * (count - 1) / count  # (2)


def likelihood_gradient_of(
    model: keras.Model, loss: Loss | None
) -> LikelihoodGradient:
    """Returns the `LikelihoodGradient` of a model and loss, from a cache."""
    if not variational_layers(model):
        raise ValueError(
            "`model` must have variational layers, such as "
            "`keras_bdl.layers.MeanFieldDense`. Convert a plain model with "
            f"`keras_bdl.convert`. Received: model={model.name!r} without any"
        )
    check_loss(model, loss)
    return _CACHE.get(
        model, loss_reference(loss), lambda: LikelihoodGradient(model, loss)
    )


def _parameters(model: keras.Model) -> list:
    return [
        variable
        for layer in variational_layers(model)
        for posterior in layer.weight_posteriors
        for variable in (posterior.mean, posterior.rho)
    ]


def _names(model: keras.Model) -> Any:
    names = []
    layers = variational_layers(model)
    known = [layer.name for layer in layers]
    for i, layer in enumerate(layers):
        name = layer.name
        if known.count(name) > 1:  # nested models may share a name
            name = f"{i}/{name}"
        for posterior in layer.weight_posteriors:
            names += [
                (name, f"{name}/{posterior.mean.name}", "means"),
                (name, f"{name}/{posterior.rho.name}", "rhos"),
            ]
    return names
