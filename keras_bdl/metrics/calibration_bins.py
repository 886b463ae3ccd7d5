"""What the streaming calibration errors have in common."""

import math
import numbers

import keras
from keras import ops

from keras_bdl.metrics.class_distributions import check_from_logits
from keras_bdl.metrics.class_distributions import example_weights
from keras_bdl.metrics.class_distributions import label_distribution
from keras_bdl.metrics.class_distributions import probabilities
from keras_bdl.metrics.class_probabilities import ClassProbabilities

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
