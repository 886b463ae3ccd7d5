"""`KLAnnealing` and `PretrainMeans`: KL and noise in the first epochs."""

from typing import Any

from keras_bdl._aliases import Schedule
from keras_bdl._arguments import check_count
from keras_bdl.callbacks._stateful_callback import FitCallback
from keras_bdl.layers._variational import annealed_layers


class KLAnnealing(FitCallback):
    """Raises the weight of the KL in the loss from 0 to 1.

        loss = nll + kl_weight kl                                         (1)

    Use it if a variational network underfits. The KL pulls an untrained
    network to the prior. With a small `kl_weight`, the network first fits the
    data. The metric `kl` and the loss of `evaluate` always use `kl_weight = 1`.
    After training, `kl_weight` is 1. Keras does not trace the training step
    again between epochs.

    Args:
        end_epoch: First epoch, counted from 0, with `kl_weight = 1`. Before,
            `kl_weight` rises by the same amount in each epoch, from 0 in
            epoch 0. Give either `end_epoch` or `schedule`. Defaults to `None`.
        schedule: Schedule of `kl_weight` over the optimizer's steps, such as
            `keras_bdl.schedules.LinearRamp(0.0, 1.0, end_step=10_000)`.
            Defaults to `None`.

    Example:

    ```python
    annealing = keras_bdl.callbacks.KLAnnealing(end_epoch=2)
    net.fit(x, y, epochs=3, callbacks=[annealing])
    ```
    """

    _of_fit = ("_annealed",)

    def __init__(
        self, end_epoch: int | None = None, *, schedule: Schedule | None = None
    ) -> None:
        super().__init__()
        if (end_epoch is None) == (schedule is None):
            raise ValueError(
                "`KLAnnealing` needs either `end_epoch` or `schedule`. "
                f"Received: end_epoch={end_epoch!r}, schedule={schedule!r}"
            )
        if end_epoch is not None:
            check_count("end_epoch", end_epoch)
        elif not callable(schedule):
            raise ValueError(
                "`schedule` must be a function of the step, such as "
                "`keras_bdl.schedules.LinearRamp`. "
                f"Received: schedule={schedule!r}"
            )
        self.end_epoch = end_epoch
        self.schedule = schedule

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Finds the variational layers, and passes them the schedule."""
        self._annealed = annealed_layers(self)
        if self.schedule is not None:
            steps = self.model.optimizer.iterations
            for annealing in self._annealed:
                annealing.kl_schedule = lambda: self.schedule(steps)
            self.model.make_train_function(force=True)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Sets `kl_weight` of this epoch, unless there is a schedule."""
        if self.schedule is None:
            self._set(min(1.0, epoch / (self.end_epoch or 1)))

    def on_train_end(self, logs: dict | None = None) -> None:
        """Sets `kl_weight` to 1."""
        if self.schedule is not None:
            for annealing in self._annealed:
                annealing.kl_schedule = None
            self.model.make_train_function(force=True)
        else:
            self._set(1.0)

    def _set(self, weight: Any) -> None:
        for annealing in self._annealed:
            annealing.kl_weight.assign(weight)


class PretrainMeans(FitCallback):
    """Trains only the means of variational layers in the first epochs.

    Use it if a variational network trains slowly at first. In the first epochs,
    the weights have no noise and the loss has no KL: the network trains like a
    deterministic network. The standard deviations of the weights keep their
    initial values. Afterwards the loss is the evidence bound. Keras does not
    trace the training step again.

    If you also use `KLAnnealing`, both callbacks count from the first epoch:
    the weight of the KL rises already while only the means are trained.

    Args:
        end_epoch: First epoch, counted from 0, that is trained as usual.
            Defaults to `1`.

    Example:

    ```python
    pretraining = keras_bdl.callbacks.PretrainMeans(end_epoch=1)
    net.fit(x, y, epochs=2, callbacks=[pretraining])
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865)
    """

    _of_fit = ("_annealed",)

    def __init__(self, end_epoch: int = 1) -> None:
        super().__init__()
        self.end_epoch = check_count("end_epoch", end_epoch)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Finds the variational layers."""
        self._annealed = annealed_layers(self)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Switches noise and KL off before `end_epoch`, and on afterwards."""
        self._set(0.0 if epoch < self.end_epoch else 1.0)

    def on_train_end(self, logs: dict | None = None) -> None:
        """Switches noise and KL on."""
        self._set(1.0)

    def _set(self, noise: Any) -> None:
        for annealing in self._annealed:
            annealing.noise.assign(noise)
