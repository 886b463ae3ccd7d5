"""Stochastic weight averaging."""

import warnings

from keras_bdl.arguments import check_bool
from keras_bdl.callbacks.weight_collector import WeightCollector
from keras_bdl.posteriors.gaussian import Gaussian
from keras_bdl.posteriors.posterior_owner import posterior_owner
from keras_bdl.prediction.batch_norm import batch_norm_layers


class SWA(WeightCollector):
    """Averages the weights visited at the end of training.

    Training itself is not changed, and the model keeps the weights of its
    last step unless `replace_weights` is set. BatchNorm statistics belong to
    other weights than the average and have to be estimated again:
    `keras_bdl.predict(..., batch_norm_data=train)`, or, with
    `replace_weights`, `keras_bdl.prediction.reestimate_batch_norm(model, x)`.

    Args:
        start_epoch: First epoch, counted from 0, that is collected.
        every: Epochs or steps between two collections. Defaults to `1`.
        unit: `"epoch"`, collect when an epoch ends, or `"step"`, after
            updates of the weights, counted from the begin of `start_epoch`.
            With `compile(steps_per_execution=k)` Keras shows the weights
            only after `k` steps: the next ones that it shows are collected.
            Defaults to `"epoch"`.
        replace_weights: Whether the model holds the average when training
            ends. Defaults to `False`.

    Example:

    ```python
    swa = keras_bdl.SWA(start_epoch=160)
    model.fit(train, epochs=300, callbacks=[swa])
    keras_bdl.predict(model, x, posterior=swa.posterior, batch_norm_data=train)
    ```

    Reference:
        - [Izmailov et al., 2018](https://arxiv.org/abs/1803.05407)
    """

    _settings = (*WeightCollector._settings, "replace_weights")

    def __init__(
        self,
        start_epoch: int,
        every: int = 1,
        unit: str = "epoch",
        replace_weights: bool = False,
    ):
        super().__init__(start_epoch, every, unit)
        self.replace_weights = check_bool("replace_weights", replace_weights)

    def on_train_begin(self, logs=None):
        """Also refuses to put other means to deviations that were learned."""
        super().on_train_begin(logs)
        owner = posterior_owner(self.model)
        if self.replace_weights and owner is not None:
            raise ValueError(
                "`SWA(replace_weights=True)` changes the weights alone, and "
                f"the deviations that `{type(owner).__name__}` learned belong "
                "to those of its last step. Leave out `replace_weights` and "
                "use the `posterior` of the callback. "
                "Received: replace_weights=True"
            )

    @property
    def posterior(self):
        """A `Gaussian` without variance: every draw is the average."""
        self._check_collected()
        return Gaussian(self._moments(self._mean), names=self._structure.names)

    def on_train_end(self, logs=None):
        """Puts the average into the model, if that was asked for."""
        if not self.replace_weights:
            return
        if not self.num_collected:
            warnings.warn(
                "`SWA(replace_weights=True)` leaves the model the weights of "
                "its last step: training stopped before the first collection. "
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
                "`SWA(replace_weights=True)` put the average into the model, "
                "and its BatchNorm statistics belong to other weights. "
                "Estimate them again: "
                "`keras_bdl.prediction.reestimate_batch_norm(model, x)`.",
                stacklevel=2,
            )
