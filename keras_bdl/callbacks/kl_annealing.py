"""Brings the KL into the loss slowly."""

from keras_bdl.callbacks.stateful_callback import FitCallback
from keras_bdl.layers.variational_layers import annealed_layers


class KLAnnealing(FitCallback):
    """Raises the weight of the KL in the loss from 0 to 1.

        loss = nll + kl_weight kl                                         (1)

    A network that has learned nothing yet is pulled to the prior by its KL;
    with less of it at first, the likelihood finds its way. The metric `kl`
    stays that of weight 1, and so does the loss of an evaluation. After
    training the weight is 1 again. Nothing is traced again from epoch to
    epoch.

    Args:
        ramp: Number of epochs over which the weight rises in equal steps,
            from 0 in the first to 1 after the last of them. Or a schedule of
            the weight over the optimizer's steps, such as
            `keras_bdl.schedules.LinearRamp(0.0, 1.0, end_step=10_000)`.

    Example:

    ```python
    model.fit(x, y, epochs=50, callbacks=[keras_bdl.callbacks.KLAnnealing(10)])
    ```
    """

    _of_fit = ("_annealed",)

    def __init__(self, ramp):
        super().__init__()
        is_count = isinstance(ramp, int) and not isinstance(ramp, bool)
        if not (callable(ramp) or (is_count and ramp >= 1)):
            raise ValueError(
                "`ramp` must be a positive number of epochs or a schedule. "
                f"Received: ramp={ramp!r}"
            )
        self.ramp = ramp

    def on_train_begin(self, logs=None):
        """Hands the schedule to the layers."""
        self._annealed = annealed_layers(self)
        if callable(self.ramp):
            steps = self.model.optimizer.iterations
            for annealing in self._annealed:
                annealing.kl_schedule = lambda: self.ramp(steps)
            self.model.make_train_function(force=True)

    def on_epoch_begin(self, epoch, logs=None):
        """Sets the weight of this epoch."""
        if not callable(self.ramp):
            self._set(min(1.0, epoch / self.ramp))

    def on_train_end(self, logs=None):
        """Leaves the bound behind."""
        if callable(self.ramp):
            for annealing in self._annealed:
                annealing.kl_schedule = None
            self.model.make_train_function(force=True)
        else:
            self._set(1.0)

    def _set(self, weight):
        for annealing in self._annealed:
            annealing.kl_weight.assign(weight)
