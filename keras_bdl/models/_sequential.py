"""A Keras stack of layers that Bayesian methods can train."""

from collections.abc import Sequence

import keras

from keras_bdl.models._bayesian_trainer import BayesianTrainer


@keras.saving.register_keras_serializable(package="keras_bdl")
class Sequential(BayesianTrainer, keras.Sequential):
    """Drop-in for `keras.Sequential` that Bayesian methods can train.

    The class adds to `keras.Sequential` the same features as
    `keras_bdl.Model` adds to `keras.Model`.

    Args:
        layers: List of layers. Defaults to `None`, an empty stack.
        trainable: Whether the variables are trained. Defaults to `True`.
        name: Name of the model. Defaults to `None`: Keras makes a name.

    Example:

    ```python
    model = keras_bdl.Sequential(
        [keras.Input((784,)), keras.layers.Dense(10)]
    )
    ```
    """

    def __init__(
        self,
        layers: Sequence[keras.layers.Layer] | None = None,
        trainable: bool = True,
        name: str | None = None,
    ):
        super().__init__(layers=layers, trainable=trainable, name=name)
