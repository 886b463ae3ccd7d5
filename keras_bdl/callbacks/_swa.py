"""The callback `SWA`, stochastic weight averaging."""

import warnings

from keras_bdl._arguments import check_bool
from keras_bdl.callbacks._weight_collector import WeightCollector
from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._held_posterior import posterior_owner
from keras_bdl.prediction._reestimate_batch_norm import batch_norm_layers


class SWA(WeightCollector):
    """Averages weights collected during training.

    Use it at the end of training, with a constant or cyclical learning rate.
    The average often predicts better than the last weights. The callback needs
    memory for one copy of the weights. `SWAG` also estimates a covariance.

    Training itself does not change. The model keeps the weights of its last
    step unless `replace_weights` is set. The BatchNorm statistics of the model
    do not fit the average. Estimate them again with
    `keras_bdl.predict(..., batch_norm_data=train)` or, after
    `replace_weights`, with
    `keras_bdl.prediction.reestimate_batch_norm(model, x)`.

    Args:
        replace_weights: Whether the model holds the average after training.
            Defaults to `False`.

    Example:

    ```python
    swa = keras_bdl.SWA(start_epoch=1)
    model.fit(train, epochs=3, callbacks=[swa])
    keras_bdl.predict(model, x_test, swa.posterior, batch_norm_data=train)
    ```

    Reference:
        - [Izmailov et al., 2018](https://arxiv.org/abs/1803.05407)
    """

    _settings = (*WeightCollector._settings, "replace_weights")

    def __init__(self, *args, replace_weights: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.replace_weights = check_bool("replace_weights", replace_weights)

    def on_train_begin(self, logs=None):
        """Also refuses `replace_weights` if standard deviations are learned."""
        super().on_train_begin(logs)
        owner = posterior_owner(self.model)
        if self.replace_weights and owner is not None:
            raise ValueError(
                "`SWA(replace_weights=True)` changes only the weights, but "
                f"`{type(owner).__name__}` also learns standard deviations. "
                "Leave out `replace_weights` and use the `posterior` of the "
                "callback. "
                "Received: replace_weights=True"
            )

    @property
    def posterior(self) -> Gaussian:
        """A `Gaussian` without variance. Every sample is the average."""
        self._check_collected()
        mean = self._moments(self._mean)
        average = Gaussian(mean, names=self._structure.names)
        return average.beside(self._trained_weights, self._frozen_weights)

    def on_train_end(self, logs=None):
        """Assigns the average to the model if `replace_weights` is set."""
        if not self.replace_weights:
            return
        if not self.num_collected:
            warnings.warn(
                "`SWA(replace_weights=True)` did not change the model, because "
                "training stopped before the first collection. "
                f"Received: start_epoch={self.start_epoch}, "
                f"every={self.every}, unit={self.unit!r}",
                stacklevel=2,
            )
            return
        variables = self.model.trainable_variables
        for variable, value in zip(
            variables, self.posterior.mean(), strict=True
        ):
            variable.assign(value)
        if batch_norm_layers(self.model):
            warnings.warn(
                "`SWA(replace_weights=True)` assigned the average to the "
                "model. Its BatchNorm statistics belong to other weights. "
                "Estimate them again with "
                "`keras_bdl.prediction.reestimate_batch_norm(model, x)`.",
                stacklevel=2,
            )
