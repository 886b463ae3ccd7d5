"""The callback `PretrainMeans`, which trains means before deviations."""

from keras_bdl._arguments import check_count
from keras_bdl.callbacks._stateful_callback import FitCallback
from keras_bdl.layers._variational import annealed_layers


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

    def __init__(self, end_epoch: int = 1):
        super().__init__()
        self.end_epoch = check_count("end_epoch", end_epoch)

    def on_train_begin(self, logs=None):
        """Finds the variational layers."""
        self._annealed = annealed_layers(self)

    def on_epoch_begin(self, epoch, logs=None):
        """Switches noise and KL off before `end_epoch`, and on afterwards."""
        self._set(0.0 if epoch < self.end_epoch else 1.0)

    def on_train_end(self, logs=None):
        """Switches noise and KL on."""
        self._set(1.0)

    def _set(self, noise):
        for annealing in self._annealed:
            annealing.noise.assign(noise)
