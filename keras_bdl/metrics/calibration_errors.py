"""Streaming calibration errors of a classifier."""

import math
import numbers

import keras
from keras import ops

from keras_bdl.metrics.class_distributions import ClassProbabilities
from keras_bdl.metrics.class_distributions import check_from_logits
from keras_bdl.metrics.class_distributions import example_weights
from keras_bdl.metrics.class_distributions import label_distribution
from keras_bdl.metrics.class_distributions import probabilities

BINNINGS = ("width", "mass")
# The histogram behind binning="mass": 128 cells for each factor of two in the
# distance of the confidence from 1, down to the spacing of float32.
CELLS_PER_OCTAVE = 128
OCTAVES = 24


class CalibrationBins(ClassProbabilities, keras.metrics.Metric):
    """Mass, confidence and accuracy in bins of the confidence.

    Args:
        num_bins: Number of bins.
        binning: `"width"` or `"mass"`.
        from_logits: Whether the model's output is logits and not
            probabilities; `None` where the compiled loss tells.
        name: Name of the metric.
        dtype: Type of the computation, `None` for `keras.config.floatx()`.
    """

    def __init__(
        self,
        num_bins: int,
        binning: str,
        from_logits: bool | None,
        name: str,
        dtype,
    ):
        super().__init__(name=name, dtype=dtype)
        if not isinstance(num_bins, numbers.Integral) or num_bins < 1:
            raise ValueError(
                "`num_bins` must be a positive integer. "
                f"Received: num_bins={num_bins!r}"
            )
        check_from_logits(from_logits)
        if binning not in BINNINGS:
            raise ValueError(
                f"`binning` must be one of {BINNINGS}. "
                f"Received: binning={binning!r}"
            )
        self.num_bins = num_bins
        self.binning = binning
        self.from_logits = from_logits
        # Read by the callbacks of Keras that have `mode="auto"`.
        self._direction = "down"
        cells = num_bins if binning == "width" else CELLS_PER_OCTAVE * OCTAVES
        # Columns: weight, weighted confidence, weighted correctness.
        self.totals = self.add_variable(
            shape=(cells, 3),
            initializer="zeros",
            dtype=self.dtype,
            name="totals",
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch to the histogram."""
        logits = self.outputs_are_logits()
        probs = probabilities(y_pred, logits, self.dtype)
        labels = label_distribution(y_true, probs)
        predicted = ops.one_hot(
            ops.argmax(probs, axis=-1), probs.shape[-1], dtype=self.dtype
        )
        confidence = ops.max(probs, axis=-1)
        correct = ops.sum(labels * predicted, axis=-1)
        weight = example_weights(sample_weight, confidence)
        rows = ops.stack(
            [weight, weight * confidence, weight * correct], axis=-1
        )
        # What has no weight, such as padding, may have no valid label.
        rows = ops.where(weight[..., None] == 0, ops.zeros_like(rows), rows)
        self.totals.assign_add(
            ops.segment_sum(
                ops.reshape(rows, (-1, 3)),
                ops.reshape(self._cell(confidence), (-1,)),
                num_segments=self.totals.shape[0],
            )
        )

    def _cell(self, confidence):
        """Returns the cell of the histogram; the last one holds 1.0."""
        cells = self.totals.shape[0]
        if self.binning == "width":
            position = confidence * cells
        else:
            # The last cell is closed, which also keeps the logarithm finite.
            doubt = ops.maximum(1.0 - confidence, 2.0**-OCTAVES)
            position = ops.log(doubt) * (-CELLS_PER_OCTAVE / math.log(2.0))
        # Clipped after the cast: NaN becomes some valid cell and stays seen.
        return ops.clip(ops.cast(position, "int32"), 0, cells - 1)

    def weights_and_gaps(self):
        """Returns share of the examples and |confidence - accuracy| by bin."""
        totals = ops.convert_to_tensor(self.totals)
        if self.binning == "mass":
            mass = totals[:, 0]
            middle = ops.cumsum(mass) - mass / 2
            position = ops.divide_no_nan(middle, ops.sum(mass)) * self.num_bins
            totals = ops.segment_sum(
                totals,
                ops.clip(ops.cast(position, "int32"), 0, self.num_bins - 1),
                num_segments=self.num_bins,
            )
        mass, confidence, correct = ops.unstack(totals, axis=1)
        share = ops.divide_no_nan(mass, ops.sum(mass))
        gap = ops.divide_no_nan(ops.abs(confidence - correct), mass)
        return share, gap

    def get_config(self):
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "num_bins": self.num_bins,
            "binning": self.binning,
            "from_logits": self.from_logits,
        }


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
