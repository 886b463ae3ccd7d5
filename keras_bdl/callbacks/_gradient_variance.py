"""The callback `GradientVariance`, which measures the noise of gradients."""

import math
from typing import Any

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_seed
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.diagnostics._gradient_variance import GradientVarianceReport
from keras_bdl.diagnostics._gradient_variance import gradient_variance
from keras_bdl.diagnostics._gradient_variance import pair_of


class GradientVariance(StatefulCallback):
    """Measures how much the gradient varies between posterior samples.

    Use it to compare kinds of variational layers by the noise of their
    gradients. The callback calls `keras_bdl.diagnostics.gradient_variance`
    once before training and then once in `every` epochs, always on the same
    batch and with the same seed. Every epoch logs `gradient_variance_means`
    and `gradient_variance_rhos`, the variances for the means and for `rho` with
    `stddev = softplus(rho)`. In epochs without a measurement, the values are
    NaN. Training itself does not change. A measurement costs about as much as
    `samples` training steps.

    Put the callback before `keras.callbacks.CSVLogger` and `TensorBoard`, so
    that they write the logs.

    Args:
        data: `(x, y)`, arrays of one batch.
        every: Number of epochs between two measurements. Defaults to `1`.
        samples: Number of posterior samples in a measurement, at least 2.
            Defaults to `30`.
        loss: The negative log-likelihood. Defaults to `None`, the compiled
            loss of the model.
        seed: Seed of the posterior samples. Defaults to `0`.

    Attributes:
        reports: Dict from a number of finished epochs to the
            `GradientVarianceReport` measured then.

    Example:

    ```python
    noise = keras_bdl.callbacks.GradientVariance(
        (x[:32], y[:32]), samples=4
    )
    net.fit(x, y, epochs=2, callbacks=[noise])
    keras_bdl.plots.gradient_variance({"mean-field": noise.reports})
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), figure 7
    """

    def __init__(
        self,
        data: tuple[ArrayLike, ArrayLike],
        *,
        every: int = 1,
        samples: int = 30,
        loss: Loss | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.every = check_count("every", every)
        self.samples = check_count("samples", samples, at_least=2)
        check_seed(seed)
        self.reports: dict[int, GradientVarianceReport] = {}
        self._batch = pair_of(data)
        self._loss = loss
        self._noise_seed = seed

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Measures before the first epoch, if the model is built."""
        self.keep_to_one_model()
        if not self.reports and self.model.built:
            self._measure(0)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Measures if `every` selects this epoch, and logs the result."""
        due = (epoch + 1) % self.every == 0
        report = self._measure(epoch + 1) if due else None
        if logs is None:
            return
        for of in ("means", "rhos"):
            value = getattr(report, of)["variance"] if due else math.nan
            logs[f"gradient_variance_{of}"] = value

    def get_state(self) -> dict[str, Any]:
        """Returns all reports."""
        return {
            "epochs": list(self.reports),
            "reports": [report.to_dict() for report in self.reports.values()],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        reports = [GradientVarianceReport(**one) for one in state["reports"]]
        self.reports = dict(zip(state["epochs"], reports, strict=True))

    def _measure(self, trained: Any) -> Any:
        report = gradient_variance(
            self.model,
            self._batch,
            samples=self.samples,
            loss=self._loss,
            seed=self._noise_seed,
            verbose=0,
        )
        self.reports[trained] = report
        return report
