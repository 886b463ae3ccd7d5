"""Maximum calibration error of a classifier."""

import keras
from keras import ops

from keras_bdl.metrics.calibration_bins import CalibrationBins


@keras.saving.register_keras_serializable(package="keras_bdl")
class MaximumCalibrationError(CalibrationBins):
    """Largest distance between confidence and accuracy in any bin.

        MCE = max_b |mean confidence in b - accuracy in b|                (1)

    over the bins that hold an example. The bins are those of
    `keras_bdl.metrics.ExpectedCalibrationError`, where `"mass"` is
    approximate. A bin of equal width that holds a single example counts as
    much as any other, so that (1) is noisy on small data.

    Args:
        num_bins: Number of bins. Defaults to `20`.
        binning: `"width"`, bins of equal width on [0, 1], or `"mass"`, bins
            that hold equally many examples. Defaults to `"width"`.
        from_logits: Whether the model's output is logits and not
            probabilities. Defaults to `None`: the cross-entropy that a
            `keras_bdl.Model` is compiled with tells; elsewhere it must be
            given.
        name: Name of the metric. Defaults to `"maximum_calibration_error"`.
        dtype: Type of the computation. Defaults to `None`,
            `keras.config.floatx()`.

    Call arguments:
        y_true: Integer labels, `(batch,)` or `(batch, 1)`, or one-hot labels
            of the shape of `y_pred`.
        y_pred: `(batch, classes)`, or `(batch, 1)` for the probability (or
            logit) of class 1. Further axes after the batch are examples too.
        sample_weight: Weight of each example.

    Reference:
        - [Guo et al., 2017](https://arxiv.org/abs/1706.04599), eq. 5
    """

    def __init__(
        self,
        num_bins: int = 20,
        binning: str = "width",
        from_logits: bool | None = None,
        name: str = "maximum_calibration_error",
        dtype=None,
    ):
        super().__init__(num_bins, binning, from_logits, name, dtype)

    def result(self):
        """Returns (1), 0 before the first example."""
        _, gap = self.weights_and_gaps()
        return ops.max(gap)  # (1)
