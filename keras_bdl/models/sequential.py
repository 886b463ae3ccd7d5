"""A Keras stack of layers that Bayesian methods can train."""

import keras

from keras_bdl.models.bayesian_trainer import BayesianTrainer


@keras.saving.register_keras_serializable(package="keras_bdl")
class Sequential(BayesianTrainer, keras.Sequential):
    """Drop-in for `keras.Sequential`, with the additions of `Model`.

    Args:
        layers: List of layers. Defaults to `None`, an empty stack.
        trainable: Whether the variables are trained. Defaults to `True`.
        name: Name of the model. Defaults to `None`, a name of Keras's.

    Example:

    ```python
    model = keras_bdl.Sequential(
        [keras.Input((784,)), keras.layers.Dense(10)]
    )
    ```
    """

    def __init__(self, layers=None, trainable=True, name=None):
        super().__init__(layers=layers, trainable=trainable, name=name)
