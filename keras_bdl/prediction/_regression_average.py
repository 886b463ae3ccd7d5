"""Average of means and variances of one batch over posterior samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bdl.prediction._average_fields import first_not_finite
from keras_bdl.prediction._average_fields import joined_batches
from keras_bdl.prediction._average_fields import mask_of_samples
from keras_bdl.prediction._average_fields import samples_first
from keras_bdl.prediction._average_fields import standard_errors
from keras_bdl.prediction._likelihood import Likelihood
from keras_bdl.prediction._regression_prediction import RegressionPrediction


class RegressionAverage:
    """Averages the means and variances of one batch over posterior samples.

    An average is a dictionary of arrays with the examples on the first axis.
    The mean is stored as a sum of the `"anchor"`, the mean of the first
    sample, and the `"offset"`: targets far from 0 may have a small spread.
    """

    @staticmethod
    def of_samples(
        outputs: dict[str, Any], likelihood: Likelihood, keep_samples: bool
    ) -> dict[str, Any]:
        """Returns the average over samples, as tensors in the graph.

        Args:
            outputs: The `"mean"` of each sample, and the `"variance"` if the
                model predicts its noise. The samples are on the first axis
                and the examples on the second. A model that masks entries has
                a `"mask"`.
            likelihood: The `Likelihood` of the output.
            keep_samples: Whether to keep the mean and the variance of every
                sample.
        """
        del likelihood
        means, variances = outputs["mean"], outputs.get("variance")
        anchor = means[0]
        offsets = means - anchor
        offset = ops.mean(offsets, axis=0)
        average = {
            "anchor": anchor,
            "offset": offset,
            "variance": ops.mean(ops.square(offsets - offset), axis=0),
            "not_finite": first_not_finite(means),
            **mask_of_samples(outputs),
        }
        if keep_samples:
            average["samples"] = ops.swapaxes(means, 0, 1)
        if variances is not None:
            average["within"] = ops.mean(variances, axis=0)
            average["lowest_within"] = ops.min(variances, axis=0)
            average["not_finite"] = ops.maximum(
                average["not_finite"], first_not_finite(variances)
            )
            if keep_samples:
                average["variances"] = ops.swapaxes(variances, 0, 1)
        return average

    @staticmethod
    def of_prediction(prediction: RegressionPrediction) -> dict[str, Any]:
        """Returns the average that a prediction was made of.

        Args:
            prediction: The prediction for one batch.
        """
        average = {
            "anchor": prediction.mean,
            "offset": np.zeros_like(prediction.mean),
            "variance": prediction.variance_between,
            **({} if prediction.mask is None else {"mask": prediction.mask}),
        }
        if prediction.noise_is_known:
            average["within"] = prediction.variance_within
        return average

    @staticmethod
    def join(
        averages: Sequence[dict[str, Any]],
        counts: Sequence[int],
        y: np.ndarray | None = None,
        noise_stddev: Any = None,
    ) -> RegressionPrediction:
        """Returns the prediction made of the averages of all batches.

        Args:
            averages: One average for each batch, in order, as NumPy arrays.
            counts: Number of samples in each average.
            y: The targets of all batches. Defaults to `None`.
            noise_stddev: Standard deviation of the noise, in place of the
                variance in the averages. Defaults to `None`.
        """
        joined = joined_batches(averages)
        num_samples = max(counts)
        mean = joined["anchor"] + joined["offset"]
        within = joined.get("within")
        variances = samples_first(joined.get("variances"))
        if noise_stddev is not None:
            within = np.square(_broadcast_noise(noise_stddev, mean.shape))
            variances = within
        if y is not None and y.size == mean.size:
            y = y.reshape(mean.shape)
        return RegressionPrediction(
            mean.astype("float32"),
            variance_between=joined["variance"].astype("float32"),
            variance_within=within,
            num_samples=num_samples,
            y=y,
            samples=samples_first(joined.get("samples")),
            sample_variances=variances,
            standard_error=standard_errors(averages, counts),
            mask=joined.get("mask"),
        )


def _broadcast_noise(noise_stddev, shape):
    noise = np.asarray(noise_stddev, "float32")
    try:
        return np.broadcast_to(noise, shape)
    except ValueError:
        raise ValueError(
            "`noise_stddev` must be a number or an array that broadcasts to "
            f"the predicted mean, of shape {shape}. "
            f"Received: noise_stddev of shape {noise.shape}"
        ) from None
