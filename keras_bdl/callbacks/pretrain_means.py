"""Trains the means of variational layers before their spread."""

from keras_bdl.callbacks.stateful_callback import FitCallback
from keras_bdl.layers.variational_layers import annealed_layers


class PretrainMeans(FitCallback):
    """Trains the means alone, by the likelihood alone, in the first epochs.

    Weights are not drawn and no KL is in the loss, so that the network learns
    as its deterministic twin does; the spread of the weights keeps its
    initial value. From then on the loss is the evidence bound. Nothing is
    traced again. With `KLAnnealing`, the epochs of both count from the first.

    Args:
        epochs: How many. Defaults to `1`.

    Example:

    ```python
    model.fit(x, y, epochs=50, callbacks=[keras_bdl.callbacks.PretrainMeans()])
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865)
    """

    _of_fit = ("_annealed",)

    def __init__(self, epochs: int = 1):
        super().__init__()
        if isinstance(epochs, bool) or not isinstance(epochs, int):
            raise ValueError(
                f"`epochs` must be an integer. Received: epochs={epochs!r}"
            )
        if epochs < 1:
            raise ValueError(
                f"`epochs` must be at least 1. Received: epochs={epochs}"
            )
        self.epochs = epochs

    def on_train_begin(self, logs=None):
        """Finds the layers."""
        self._annealed = annealed_layers(self)

    def on_epoch_begin(self, epoch, logs=None):
        """Turns the noise off or on."""
        self._set(0.0 if epoch < self.epochs else 1.0)

    def on_train_end(self, logs=None):
        """Leaves the noise on."""
        self._set(1.0)

    def _set(self, noise):
        for annealing in self._annealed:
            annealing.noise.assign(noise)
