"""What a Bayesian model says about a set of inputs."""

import numpy as np


class Prediction:
    """Base of the predictions of one model output over a set of inputs.

    Made by `keras_bdl.predict`. Everything is a NumPy array whose leading
    axes are those of the model's output, examples first.

    Attributes:
        task: `"classification"` or `"regression"`.
        num_samples: How many posterior draws were averaged.
        y: The labels found in the data, or `None`.
    """

    task = None

    def __init__(self, num_samples: int, y=None, samples=None):
        self.num_samples = num_samples
        self.y = None if y is None else np.asarray(y)
        self._samples = samples

    @property
    def samples(self):
        """The prediction of every draw, draws on the first axis."""
        if self._samples is None:
            raise ValueError(
                "The draws were averaged as they came and not kept. "
                "Call `keras_bdl.predict(..., keep_samples=True)`, which "
                "needs memory in proportion to `samples`."
            )
        return self._samples

    @property
    def has_samples(self):
        """Whether the prediction of every draw was kept."""
        return self._samples is not None

    def __len__(self):
        return len(self.mean)

    def __repr__(self):
        return (
            f"{type(self).__name__}(shape={self.mean.shape}, "
            f"num_samples={self.num_samples})"
        )
