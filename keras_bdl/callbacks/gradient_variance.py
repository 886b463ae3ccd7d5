"""Follows the noise of the gradient along a training."""

import math

from keras_bdl.arguments import check_seed
from keras_bdl.callbacks.stateful_callback import StatefulCallback
from keras_bdl.callbacks.weight_collector import check_integer
from keras_bdl.diagnostics.gradients.gradient_variance import (
    GradientVarianceReport,
)
from keras_bdl.diagnostics.gradients.gradient_variance import gradient_variance


class GradientVariance(StatefulCallback):
    """Measures the noise of drawn weights in the gradient between epochs.

    Calls `keras_bdl.diagnostics.gradient_variance` before training and after
    every so many epochs, on the same batch and with the same seed. Every epoch
    logs `gradient_variance_means` and `gradient_variance_rhos`, NaN where it
    was not measured. Training itself is not changed. A measurement costs about
    as much as `draws` training steps.

    Put it before `keras.callbacks.CSVLogger` and `TensorBoard`.

    Args:
        x: Inputs, arrays of one batch.
        y: Its targets.
        every: Epochs between two measurements. Defaults to `1`.
        draws: Draws of the weights in each. Defaults to `30`.
        loss: The negative log-likelihood. Defaults to `None`, the one that
            the model is compiled with.
        seed: Selects the draws. Defaults to `0`.

    Attributes:
        reports: Dict from the number of epochs trained to the
            `GradientVarianceReport`.

    Example:

    ```python
    noise = keras_bdl.callbacks.GradientVariance(x[:64], y[:64], every=5)
    net.fit(x, y, epochs=100, callbacks=[noise])
    keras_bdl.plots.gradient_variance({"Radial": noise.reports})
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), figure 7
    """

    def __init__(
        self,
        x,
        y,
        every: int = 1,
        draws: int = 30,
        loss=None,
        seed: int = 0,
    ):
        super().__init__()
        self.every = check_integer("every", every, 1)
        self.draws = check_integer("draws", draws, 2)
        check_seed(seed)
        self.reports = {}
        self._batch = (x, y)
        self._loss = loss
        self._seed = seed

    def on_train_begin(self, logs=None):
        """Measures before the first epoch."""
        self.keep_to_one_model()
        if not self.reports and self.model.built:
            self._measure(0)

    def on_epoch_end(self, epoch, logs=None):
        """Measures if an epoch is due, and logs the result."""
        due = (epoch + 1) % self.every == 0
        report = self._measure(epoch + 1) if due else None
        if logs is None:
            return
        for of in ("means", "rhos"):
            value = getattr(report, of)["variance"] if due else math.nan
            logs[f"gradient_variance_{of}"] = value

    def get_state(self):
        """Returns all reports."""
        return {
            "epochs": list(self.reports),
            "reports": [report.to_dict() for report in self.reports.values()],
        }

    def set_state(self, state):
        """Goes on from what `get_state` returned."""
        reports = [GradientVarianceReport(**one) for one in state["reports"]]
        self.reports = dict(zip(state["epochs"], reports, strict=True))

    def _measure(self, trained):
        report = gradient_variance(
            self.model,
            *self._batch,
            draws=self.draws,
            loss=self._loss,
            seed=self._seed,
            verbose=0,
        )
        self.reports[trained] = report
        return report
