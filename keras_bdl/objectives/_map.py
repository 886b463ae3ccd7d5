"""Maximum a posteriori: the most probable weights."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.objectives._batch_outcome import BatchPass
from keras_bdl.objectives._batch_outcome import Outcome
from keras_bdl.objectives._objective import Objective


@keras.saving.register_keras_serializable(package="keras_bdl")
class MAP(Objective):
    """The mode of the posterior: the loss plus a prior.

    Use MAP as the baseline of `TaylorVI` and `SampledVI`, which equal MAP at
    zero variance. The loss is

        loss = nll(w) - (tau / N) log p(w)                                (1)

    with nll the mean negative log-likelihood, N the number of examples and
    tau the temperature, which multiplies the prior alone. At `tau = 1` the
    minimum of (1) is the mode of the posterior.

    MAP has no posterior: `keras_bdl.predict` uses the network itself.

    Args:
        exclude_from_inference: Names of layers, of classes of layers or of
            variables without a prior. Defaults to `("BatchNormalization",)`.

    Example:

    ```python
    prior = keras_bdl.priors.HeNormal()
    model.compile("adam", loss, objective=keras_bdl.objectives.MAP(prior))
    model.fit(x, y, verbose=0)
    ```
    """

    def look(
        self, forward: BatchPass, values: list, own: list
    ) -> list[Outcome]:
        """Returns the outcome of the batch."""
        return [forward(values)]

    def complexity(self, forward: BatchPass, values: list, own: list) -> Any:
        """Returns `-log p(w)`."""
        log_priors = [
            ops.sum(self.prior.log_prob(ops.cast(values[i], "float32")))
            for i in forward.inferred
        ]
        return -tf.add_n(log_priors)

    def check(self, model: keras.Model, inferred: list) -> None:
        """Also raises an error for `train_samples`: MAP draws no samples."""
        super().check(model, inferred)
        if model.train_samples != 1:
            raise ValueError(
                "`MAP` draws no samples. Compile without `train_samples`. "
                f"Received: train_samples={model.train_samples}"
            )
