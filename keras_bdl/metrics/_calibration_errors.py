"""Streaming calibration errors of a classifier."""

import math
from typing import Any

import keras
from keras import ops

from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl.metrics._classification import ClassificationMetric
from keras_bdl.metrics._classification import example_weights
from keras_bdl.metrics._classification import label_distribution
from keras_bdl.metrics._classification import probabilities

BINNINGS = ("width", "mass")
# The histogram of binning="mass" has 128 cells for each halving of
# 1 - confidence, down to 2^-24, the spacing of float32.
CELLS_PER_OCTAVE = 128
OCTAVES = 24


class StreamingCalibrationError(ClassificationMetric):
    """Base of the calibration errors: computes weight and gap of each bin."""

    # Keras callbacks with `mode="auto"` read this direction.
    _direction = "down"

    def __init__(
        self,
        num_bins: int = 20,
        *,
        binning: str = "width",
        from_logits: bool | None = None,
        name: str | None = None,
        dtype: str | None = None,
    ):
        super().__init__(from_logits=from_logits, name=name, dtype=dtype)
        check_count("num_bins", num_bins)
        check_choice("binning", binning, BINNINGS)
        self.num_bins = num_bins
        self.binning = binning
        cells = num_bins if binning == "width" else CELLS_PER_OCTAVE * OCTAVES
        # Columns: weight, weighted confidence, weighted correctness.
        self.totals = self.add_variable(
            shape=(cells, 3),
            initializer="zeros",
            dtype=self.dtype,
            name="totals",
        )

    def update_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
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
        # Examples of weight 0, such as padding, may have an invalid label.
        rows = ops.where(weight[..., None] == 0, ops.zeros_like(rows), rows)
        self.totals.assign_add(
            ops.segment_sum(
                ops.reshape(rows, (-1, 3)),
                ops.reshape(self._cell(confidence), (-1,)),
                num_segments=self.totals.shape[0],
            )
        )

    def _cell(self, confidence: Any) -> Any:
        """Returns the index of the cell that holds a confidence."""
        cells = self.totals.shape[0]
        if self.binning == "width":
            position = confidence * cells
        else:
            # The last cell includes 1.0, where the logarithm is infinite.
            doubt = ops.maximum(1.0 - confidence, 2.0**-OCTAVES)
            position = ops.log(doubt) * (-CELLS_PER_OCTAVE / math.log(2.0))
        # The clip puts NaN into a valid cell, whose total then becomes NaN.
        return ops.clip(ops.cast(position, "int32"), 0, cells - 1)

    def weights_and_gaps(self) -> tuple[Any, Any]:
        """Returns the share of the examples in each bin, and its gap.

        The gap is `|mean confidence - accuracy|`.
        """
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

    def get_config(self) -> dict[str, Any]:
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "num_bins": self.num_bins,
            "binning": self.binning,
        }


@keras.saving.register_keras_serializable(package="keras_bdl")
class ExpectedCalibrationError(StreamingCalibrationError):
    """Mean distance between the confidence of a classifier and its accuracy.

    Use it during training to see whether probabilities can be trusted. The
    confidence is the highest class probability. The examples are sorted by
    confidence into bins `b`. With `n_b` the weight of the examples in bin `b`,
    and `n` the weight of all examples,

        ECE = sum_b n_b/n |mean confidence in b - accuracy in b|          (1)

    Empty bins add nothing. With bins of equal width, the result is exact; the
    last bin includes a confidence of 1.0. With bins of equal mass, the result
    is an **approximation**, because the quantiles of a stream are not known in
    advance. The metric counts examples in 3072 fixed cells, 128 for each
    halving of `1 - confidence`, and merges whole cells into bins. Each cell
    covers an interval of the cumulative weight of the examples. The cell goes
    to the bin that contains the middle of this interval. `keras_bdl.evaluate`
    uses the exact quantiles.

    Args:
        num_bins: Number of bins. Defaults to `20`.
        binning: `"width"` for bins of equal width on [0, 1], or `"mass"` for
            bins with equally many examples. Defaults to `"width"`.
        from_logits, name, dtype: As in `keras_bdl.metrics.BrierScore`.

    Call arguments:
        y_true: Integer labels, `(batch,)` or `(batch, 1)`, or one-hot labels
            of the shape of `y_pred`.
        y_pred: `(batch, classes)`, or `(batch, 1)` for the probability (or
            logit) of class 1. Axes between the batch and the classes hold
            further examples.
        sample_weight: Weight of each example.

    Example:

    ```python
    metric = keras_bdl.metrics.ExpectedCalibrationError()
    model.compile("adam", loss, metrics=["accuracy", metric])
    ```

    Reference:
        - [Guo et al., 2017](https://arxiv.org/abs/1706.04599), eq. 3
    """

    default_name = "expected_calibration_error"

    def result(self) -> Any:
        """Returns (1), or 0 before the first example."""
        share, gap = self.weights_and_gaps()
        return ops.sum(share * gap)  # (1)


@keras.saving.register_keras_serializable(package="keras_bdl")
class MaximumCalibrationError(StreamingCalibrationError):
    """Largest distance between confidence and accuracy in any bin.

    Use it if the worst bin matters more than the average. Over the bins `b`
    that hold an example,

        MCE = max_b |mean confidence in b - accuracy in b|                (1)

    The bins are those of `keras_bdl.metrics.ExpectedCalibrationError`, where
    `"mass"` is approximate. A bin with a single example counts as much as any
    other, so (1) is noisy on small data.

    Args:
        num_bins: Number of bins. Defaults to `20`.
        binning: `"width"` for bins of equal width on [0, 1], or `"mass"` for
            bins with equally many examples. Defaults to `"width"`.
        from_logits, name, dtype: As in `keras_bdl.metrics.BrierScore`.

    The call arguments are those of `ExpectedCalibrationError`.

    Example:

    ```python
    metric = keras_bdl.metrics.MaximumCalibrationError(from_logits=True)
    model.compile("sgd", loss, metrics=[metric])
    model.evaluate(x, y, verbose=0)
    ```

    Reference:
        - [Guo et al., 2017](https://arxiv.org/abs/1706.04599), eq. 5
    """

    default_name = "maximum_calibration_error"

    def result(self) -> Any:
        """Returns (1), or 0 before the first example."""
        _, gap = self.weights_and_gaps()
        return ops.max(gap)  # (1)
