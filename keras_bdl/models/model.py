"""A Keras model that Bayesian methods can train."""

import keras

from keras_bdl.models.bayesian_trainer import BayesianTrainer
from keras_bdl.models.functional_twin import functional_class
from keras_bdl.models.functional_twin import functional_twin
from keras_bdl.models.functional_twin import is_functional_call


@keras.saving.register_keras_serializable(package="keras_bdl")
class Model(BayesianTrainer, keras.Model):
    """Drop-in for `keras.Model` that Bayesian methods can train.

    With nothing Bayesian in it, it trains bit for bit like `keras.Model`.
    On top of that it

    - counts the training examples N in `fit`, and tells N to the optimizer,
      objective, layers and regularizers whose `dataset_size` was not given;
    - owns the number of Monte-Carlo draws, `compile(train_samples=...,
      samples=...)`;
    - hands the training step to an optimizer or objective that asks for it.

    Where anything asks for N, the loss must be the mean negative
    log-likelihood of the examples: a sum is refused, and a loss that implies a
    certain noise, such as the mean squared error, is a warning. Metrics that
    would misread the outputs, which the compiled loss describes, are refused.

    It is used as `keras.Model` is: `Model(inputs, outputs)`, a subclass with a
    `call`, or a subclass whose `__init__` makes a functional model.

    Args:
        *args: As of `keras.Model`.
        **kwargs: As of `keras.Model`.

    Example:

    ```python
    inputs = keras.Input((28, 28, 1))
    x = keras.layers.Flatten()(inputs)
    model = keras_bdl.Model(inputs, keras.layers.Dense(10)(x))
    ```
    """

    def __new__(cls, *args, **kwargs):
        """Picks the functional twin for inputs and outputs."""
        if cls is Model and is_functional_call(args, kwargs):
            cls = functional_twin(cls)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args, **kwargs):
        if is_functional_call(args, kwargs):
            # Here and not only in `__new__`: the inputs and outputs of a
            # subclass may be made in its own `__init__`.
            self.__class__ = functional_twin(type(self))
            functional_class().__init__(self, *args, **kwargs)
        else:
            super().__init__(*args, **kwargs)
