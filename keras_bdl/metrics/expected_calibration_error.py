"""Expected calibration error of a classifier."""

import keras
from keras import ops

from keras_bdl.metrics.calibration_bins import CalibrationBins


@keras.saving.register_keras_serializable(package="keras_bdl")
class ExpectedCalibrationError(CalibrationBins):
    """Mean distance between the confidence of a classifier and its accuracy.

    The confidence is the highest class probability. With the examples sorted
    into bins `b` by their confidence and `n_b` the (weighted) number in each,

        ECE = sum_b n_b/n |mean confidence in b - accuracy in b|          (1)

    Empty bins add nothing. Bins of equal width are exact; a confidence of
    exactly 1.0 falls in the last one. Bins of equal mass are an
    **approximation**, since the quantiles of a stream are not known while it
    flows: the examples are counted in 3072 fixed cells, 128 for each factor
    of two in `1 - confidence`, and whole cells are then put together into
    bins, each cell into the bin that the middle of its mass falls in.
    `keras_bdl.evaluate` has the exact quantiles.

    Args:
        num_bins: Number of bins. Defaults to `20`.
        binning: `"width"`, bins of equal width on [0, 1], or `"mass"`, bins
            that hold equally many examples. Defaults to `"width"`.
        from_logits: Whether the model's output is logits and not
            probabilities. Defaults to `None`: the cross-entropy that a
            `keras_bdl.Model` is compiled with tells; elsewhere it must be
            given.
        name: Name of the metric. Defaults to `"expected_calibration_error"`.
        dtype: Type of the computation. Defaults to `None`,
            `keras.config.floatx()`.

    Call arguments:
        y_true: Integer labels, `(batch,)` or `(batch, 1)`, or one-hot labels
            of the shape of `y_pred`.
        y_pred: `(batch, classes)`, or `(batch, 1)` for the probability (or
            logit) of class 1. Further axes after the batch are examples too.
        sample_weight: Weight of each example.

    Example:

    ```python
    metric = keras_bdl.metrics.ExpectedCalibrationError()
    model.compile("adam", loss, metrics=["accuracy", metric])
    ```

    Reference:
        - [Guo et al., 2017](https://arxiv.org/abs/1706.04599), eq. 3
    """

    def __init__(
        self,
        num_bins: int = 20,
        binning: str = "width",
        from_logits: bool | None = None,
        name: str = "expected_calibration_error",
        dtype=None,
    ):
        super().__init__(num_bins, binning, from_logits, name, dtype)

    def result(self):
        """Returns (1), 0 before the first example."""
        share, gap = self.weights_and_gaps()
        return ops.sum(share * gap)  # (1)
