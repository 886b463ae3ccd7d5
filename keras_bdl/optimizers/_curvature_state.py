"""Base class of the optimizers that keep a curvature of each weight."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_number
from keras_bdl.optimizers._variational_optimizer import VariationalOptimizer

# The initial curvature is the first over sqrt(N). With few examples, samples
# would be too wide: the second over N gives a standard deviation of 0.045. The
# third bounds that below 250 examples, because steps are multiplied by the
# initial curvature. Measured from 118 to 6,000 examples.
LARGE_DATA, SMALL_DATA, AT_MOST = 8.0, 500.0, 2.0


class CurvatureState(VariationalOptimizer):
    """Base with the momentum and the curvature s of each weight.

    The symbols are those of `VariationalOptimizer`.

    Args:
        beta_1: Decay of the momentum. Defaults to `0.9`.
        beta_2: Decay of the curvature, near 1 for a long memory. Some papers
            print `1 - beta_2`, the weight of the new value. Defaults to
            `0.999`.
        initial_curvature: s of every weight before the first step, or
            `"first_batch"`: the first step runs at the means, without noise,
            and sets s. A smaller value makes the first samples wider. Defaults
            to `None`: `8 / sqrt(N)`, or `min(500 / N, 2)` if that is larger.
            The first samples are then narrow enough to learn with few examples
            as well as with many.
        rescale_learning_rate: Whether steps are multiplied by
            `s_0 + delta_t`, with s_0 the initial curvature. The first steps are
            then like those of SGD with the same learning rate. Has no effect
            with `initial_curvature="first_batch"`. Defaults to `True`.
    """

    def __init__(
        self,
        *args,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        initial_curvature: float | str | None = None,
        rescale_learning_rate: bool = True,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        check_number("beta_1", beta_1, at_least=0.0, below=1.0)
        check_number("beta_2", beta_2, at_least=0.0, below=1.0)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.initial_curvature = initial_curvature
        self.rescale_learning_rate = check_bool(
            "rescale_learning_rate", rescale_learning_rate
        )

    def build(self, variables):
        """Creates a momentum and a curvature for every variable."""
        if self.built:
            return
        super().build(variables)
        self._momenta = self.add_optimizer_variables(variables, "momentum")
        self._curvatures = self.add_curvatures(variables)
        self.counted()

    def add_curvatures(self, variables: list) -> list:
        """Returns one variable for s of each trainable variable.

        Args:
            variables: The trainable variables of the model.
        """
        return self.add_optimizer_variables(variables, "curvature")

    def counted(self) -> None:
        """Sets s to its initial value, once N is known."""
        start = self.initial_curvature
        if start == "first_batch" or not self.built:
            return
        if start is None and not self.dataset_size.known:
            return  # `fit` calls this method again
        if int(ops.convert_to_numpy(self.iterations)) == 0:
            self.assign_curvatures(self.start_of_curvature())

    def assign_curvatures(self, value: Any) -> None:
        """Sets s of every weight.

        Args:
            value: The value, a number.
        """
        for curvature in self._curvatures:
            if curvature is None:
                continue  # a matrix with Kronecker factors covers the variable
            curvature.assign(ops.full_like(curvature, value))

    def start_of_curvature(self) -> Any:
        """Returns s_0, a number."""
        if self.initial_curvature is None:
            examples = self.number_of_examples()
            return ops.maximum(
                LARGE_DATA / ops.sqrt(examples),
                ops.minimum(SMALL_DATA / examples, AT_MOST),
            )
        return self.initial_curvature

    def step_size(self, learning_rate: Any, prior: tf.Tensor) -> Any:
        """Returns the factor of a step, the learning rate times s_0 + delta_t.

        Args:
            learning_rate: The learning rate.
            prior: delta_t of the variable that moves, in its dtype.
        """
        step = ops.cast(learning_rate, prior.dtype)
        if not self.rescale_learning_rate:
            return step
        if self.initial_curvature == "first_batch":
            return step
        start = ops.cast(self.start_of_curvature(), prior.dtype)
        return step * (start + prior)

    def precision(self, variable: keras.Variable) -> tf.Tensor:
        """Returns s + delta_t of a variable."""
        return self.curvature(variable) + self.scaled_prior(variable)

    def curvature(self, variable: keras.Variable) -> tf.Tensor:
        """Returns s of a variable."""
        index = _keras.variable_index(self, variable)
        return tf.convert_to_tensor(self._curvatures[index].value)

    def get_config(self):
        """Returns every argument that the constructor accepts."""
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "initial_curvature": self.initial_curvature,
            "rescale_learning_rate": self.rescale_learning_rate,
        }
