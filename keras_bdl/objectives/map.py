"""The most probable weights."""

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.objectives.objective import Objective


@keras.saving.register_keras_serializable(package="keras_bdl")
class MAP(Objective):
    """The mode of the posterior: the loss and a prior.

        loss = nll(w) - (tau / N) log p(w)                                (1)

    with nll the mean negative log-likelihood, N the number of examples and
    tau the temperature, which multiplies the prior alone: at 1 it is the mode
    of the posterior. It is what `TaylorVI` and `SampledVI` come to where
    variances vanish, for comparison with them.

    There is no posterior: `keras_bdl.predict` takes the network as it is.

    Args:
        prior: p, anything that `keras_bdl.priors.get` takes. Defaults to
            `None`: `Normal(1.0)`.
        temperature: tau, float or schedule. Defaults to `1.0`.
        dataset_size: N. Defaults to `None`: counted by
            `keras_bdl.Model.fit`.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables without a prior. Defaults to `("BatchNormalization",)`.

    Example:

    ```python
    model = keras_bdl.Model(net.inputs, net.outputs)
    model.compile(
        "adam",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        objective=keras_bdl.objectives.MAP(keras_bdl.priors.HeNormal()),
    )
    ```
    """

    def __init__(
        self,
        prior=None,
        temperature=1.0,
        dataset_size: int | None = None,
        exclude_from_inference=("BatchNormalization",),
    ):
        super().__init__(
            prior, temperature, dataset_size, exclude_from_inference
        )

    def look(self, forward, values, own):
        """Returns the outcome of the batch."""
        return [forward(values)]

    def complexity(self, forward, values, own):
        """Returns `-log p(w)`."""
        log_priors = [
            ops.sum(self.prior.log_prob(ops.cast(values[i], "float32")))
            for i in forward.inferred
        ]
        return -tf.add_n(log_priors)

    def check(self, model, inferred):
        """Also refuses draws, which there are none of."""
        super().check(model, inferred)
        if model.train_samples != 1:
            raise ValueError(
                "`MAP` draws nothing: compile without `train_samples`. "
                f"Received: train_samples={model.train_samples}"
            )
