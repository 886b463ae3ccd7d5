"""The training step of the natural-gradient optimizers."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.arguments import check_number
from keras_bdl.curvature.weight_scope import WeightScope
from keras_bdl.curvature.weight_scope import current_values
from keras_bdl.distribute.replica_gradients import for_all_replicas
from keras_bdl.distribute.replicas import replica_weight
from keras_bdl.loss_scaling import loss_scale
from keras_bdl.optimizers.variational_optimizer import VariationalOptimizer
from keras_bdl.posteriors import Gaussian
from keras_bdl.random.weight_noise import EVALUATION
from keras_bdl.random.weight_noise import TRAINING
from keras_bdl.random.weight_noise import Compilation
from keras_bdl.random.weight_noise import gaussian_draw
from keras_bdl.random.weight_noise import gaussian_draw_and_score
from keras_bdl.random.weight_noise import random_bits


class NaturalGradient(VariationalOptimizer):
    """Base of the optimizers that learn a Gaussian from draws of it.

    The variables of the model are the means, at all times; draws are put into
    the model only while a training step looks at them. With the symbols of
    `VariationalOptimizer` and a curvature s, one number a weight,

        w = mu + eps sqrt(tau / (rho N (s + delta_t))),  eps ~ N(0, I)    (1)

    A subclass has a `look`, which finds out what there is to know about a
    draw, and an `update_step`, whose first argument is what `look` returned
    for this variable, averaged over draws and replicas. One whose posterior
    is not (1) has a `draw` and a `posterior` of its own.

    Args:
        learning_rate: See `VariationalOptimizer`, as all others but
        dataset_size: See there.
        prior_precision: See there.
        beta_1: Decay of the momentum.
        beta_2: Decay of the curvature.
        temperature: See there.
        augmentation_factor: See there.
        initial_curvature: s before the first step, or `"first_batch"`: the
            first step is one at the means, without noise, and sets it.
        exclude_from_inference: See there.
        seed: See there.
        name: See there.
        kwargs: See there.
    """

    noisy_training = True
    needs_scores = False
    _sizes = None

    def __init__(
        self,
        learning_rate,
        dataset_size,
        prior_precision,
        beta_1,
        beta_2,
        temperature,
        augmentation_factor,
        initial_curvature,
        exclude_from_inference,
        seed,
        name,
        kwargs,
    ):
        super().__init__(
            learning_rate,
            dataset_size,
            prior_precision,
            temperature,
            augmentation_factor,
            exclude_from_inference,
            seed,
            name,
            kwargs,
        )
        check_number("beta_1", beta_1, at_least=0.0, below=1.0)
        check_number("beta_2", beta_2, at_least=0.0, below=1.0)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.initial_curvature = initial_curvature
        self._compilation = Compilation()

    def build(self, variables):
        """Creates momentum and curvature of every variable."""
        if self.built:
            return
        super().build(variables)
        start = self.initial_curvature
        if start == "first_batch":
            start = 0.0
        self._momenta = self.add_optimizer_variables(variables, "momentum")
        self._curvatures = self.add_curvatures(variables, start)

    def add_curvatures(self, variables, start: float):
        """Returns one variable for s of each trainable variable.

        Args:
            variables: Those of the model.
            start: What they hold.
        """
        constant = keras.initializers.Constant(start)
        return self.add_optimizer_variables(variables, "curvature", constant)

    def look(self, model, data, draw, loss_scale):
        """Finds out the gradient of a batch, and more, under a draw.

        Args:
            model: The `keras_bdl.Model`.
            data: Inputs, targets and weights of the examples.
            draw: What `draw` returned.
            loss_scale: What the loss is to be multiplied by on the way back,
                and the result divided by; or `None`.

        Returns:
            The loss, the outputs, and for each variable a tuple of tensors,
            an empty one if it moves together with another; replicas add them
            up.
        """
        raise NotImplementedError

    def bayesian_train_step(self, model, data):
        """Moves the means by what `train_samples` draws say of a batch."""
        data = keras.utils.unpack_x_y_sample_weight(data)
        variables = self.prepare(model, data[0])
        self.check(variables)
        scale = loss_scale(model.optimizer)
        losses, outputs, looks = [], [], []
        for number in range(model.train_samples):
            draw = self.draw(variables, TRAINING, number, self.needs_scores)
            loss, y_pred, found = self.look(model, data, draw, scale)
            losses.append(loss)
            outputs.append(y_pred)
            looks.append(keras.tree.flatten(found))
        means = [_mean(tensors) for tensors in zip(*looks, strict=True)]
        if scale is not None:  # by which the optimizer outside divides
            means = [mean * ops.cast(scale, mean.dtype) for mean in means]
        weight = replica_weight(data)
        means = for_all_replicas(model.optimizer, means, weight)
        # One list, as if all were gradients: it is reduced in one go, and is
        # what loss scaling looks for infinities in.
        self._sizes = tuple(len(of_variable) for of_variable in found)
        owners = zip(variables, self._sizes, strict=True)
        model.optimizer.apply(means, [v for v, n in owners for _ in range(n)])
        x, y, sample_weight = data
        return model.finish_draws(losses, x, y, outputs, sample_weight)

    def apply(self, grads, trainable_variables=None):
        """Takes what `bayesian_train_step` found, which nobody else has."""
        grads = list(grads)
        if self._sizes is None or len(grads) != sum(self._sizes):
            raise ValueError(
                f"`{type(self).__name__}` needs more than gradients, and so "
                "runs the training step itself. Train a `keras_bdl.Model`, "
                "such as `keras_bdl.Model(model.inputs, model.outputs)`, "
                "compiled without `objective`. "
                f"Received: {len(grads)} gradients from another training step"
            )
        variables, found, start = [], [], 0
        for size in filter(None, self._sizes):
            variables.append(trainable_variables[start])
            found.append(tuple(grads[start : start + size]))
            start += size
        super().apply(found, variables)

    def draw(self, variables, stream: int, number: int, scores: bool = False):
        """Returns weights, as a list of tensors; (1).

        Args:
            variables: The trainable variables of the model.
            stream: `TRAINING`, or `EVALUATION`: the same on every replica
                and in every call.
            number: Which draw.
            scores: Whether to return a second list, of `eps` divided by the
                standard deviation of its weight; `None` where there is no
                noise. Defaults to `False`.
        """
        values = current_values(variables)
        of_values = [None] * len(values)
        drawn = [i for i, v in enumerate(variables) if not self.is_excluded(v)]
        if drawn and (self.noisy_training or stream == EVALUATION):
            size = sum(math.prod(variables[i].shape) for i in drawn)
            bits = self.bits(size, stream, number)
            draws = self._compilation.run(
                gaussian_draw_and_score if scores else gaussian_draw,
                bits,
                [values[i] for i in drawn],
                [self.curvature(variables[i]) for i in drawn],
                [self.scaled_prior(variables[i]) for i in drawn],
                self.noise_variance(),
            )
            draws, found = draws if scores else (draws, [None] * len(drawn))
            for i, value, score in zip(drawn, draws, found, strict=True):
                values[i], of_values[i] = value, score
        return (values, of_values) if scores else values

    def bits(self, size: int, stream: int, number: int):
        """Returns the random bits of a draw, 32 for each weight.

        Args:
            size: Number of weights.
            stream: See `draw`.
            number: See `draw`.
        """
        return random_bits(
            size,
            seed=self.seed,
            stream=stream,
            draw=number,
            step=self.iterations if stream == TRAINING else 0,
        )

    def call_with_draw(self, model, x, draw):
        """Returns the outputs under one draw, the same for all batches.

        Args:
            model: The `keras_bdl.Model`.
            x: A batch of inputs.
            draw: Which draw.
        """
        self.check_learned(evaluating=True)
        variables = self.prepare(model, x)
        values = self.draw(variables, EVALUATION, draw)
        scope = WeightScope(variables, values)
        scope.collect_losses = False  # the layers keep them, as ever
        with scope:
            return model._call_for(x, training=False)

    def posterior(self, model):
        """Returns the `keras_bdl.posteriors.Gaussian` that was learned.

        Args:
            model: The model that was trained.
        """
        self.check_learned()
        variables = self.prepare(model)
        return Gaussian(
            [ops.convert_to_numpy(v) for v in variables],
            [self.variance(variable) for variable in variables],
            names=[v.name for v in variables],
            trained_under_draws=self.noisy_training,
        )

    def variance(self, variable):
        """Returns sigma^2 of a variable, an array; zeros if it is excluded.

        Args:
            variable: A trainable variable.
        """
        if self.is_excluded(variable):
            return np.zeros(variable.shape, variable.dtype)
        factor = float(self.noise_variance())
        return factor / ops.convert_to_numpy(self.precision(variable))

    def precision(self, variable):
        """Returns s + delta_t of a variable."""
        return self.curvature(variable) + self.scaled_prior(variable)

    def curvature(self, variable):
        """Returns s of a variable."""
        index = _keras.variable_index(self, variable)
        return tf.convert_to_tensor(self._curvatures[index].value)

    def noise_variance(self):
        """Returns tau / (rho N), or 0 as long as there is no curvature."""
        if self.initial_curvature == "first_batch":
            return ops.where(self.is_first(), 0.0, self.kl_weight())
        return self.kl_weight()

    def is_first(self):
        """Returns whether no step was taken yet."""
        return ops.equal(self.iterations, 0)

    def get_config(self):
        """Returns every constructor argument but those refused."""
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "initial_curvature": self.initial_curvature,
        }


def _mean(tensors):
    if len(tensors) == 1:
        return tensors[0]
    return tf.add_n(tensors) / len(tensors)
