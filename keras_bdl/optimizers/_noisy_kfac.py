"""Noisy K-FAC: natural-gradient inference with Kronecker factors."""

import math
import weakref
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._arguments import check_count
from keras_bdl._random._noise import EVALUATION
from keras_bdl._random._noise import draw_numbers
from keras_bdl._random._noise import split_numbers
from keras_bdl.curvature._weight_scope import current_values
from keras_bdl.optimizers._kronecker_decomposition import places_of
from keras_bdl.optimizers._kronecker_decomposition import slots_of
from keras_bdl.optimizers._vogn import VOGN
from keras_bdl.posteriors import MatrixNormal


@keras.saving.register_keras_serializable(package="keras_bdl")
class NoisyKFAC(VOGN):
    """Noisy K-FAC: fits a Gaussian with correlated weights to the posterior.

    Use Noisy K-FAC where correlations within a layer matter and layers are
    narrow: memory and time grow fast with the width of a layer. A step takes
    1.3 to 8.5 times as long as a step of Adam.

    NoisyKFAC trains the weights of an ordinary model, as `VOGN` does. The
    weights of each `Dense`, each convolution without groups, and each
    `EinsumDense` whose kernel is a matrix form one matrix W, with the mean M.
    W holds the kernel and, as its last row, the bias. The curvature of W has
    two factors, A and S. With x the inputs of the layer and dz the gradient of
    one example's loss with respect to the product of x and W, the factors are
    the moving averages

        A <- beta_2 A + (1 - beta_2) mean(sum over positions of x x^T)    (1)
        S <- beta_2 S + (1 - beta_2) mean(dz dz^T)                        (2)

    The means are over examples, samples and replicas, and in (2) also over
    positions: the pixels or time steps at which the layer applies W. A and S
    have the eigendecompositions `A = Q_A diag(a) Q_A^T` and
    `S = Q_S diag(s) Q_S^T`. With N examples, augmentation factor rho,
    temperature tau, prior precision delta and `delta_t = tau delta / (rho N)`,
    a sample of the weights is

        W = M + sqrt(tau / (rho N)) Q_A [
            (Q_A^T E Q_S)_jk / sqrt(a_j s_k + delta_t) ] Q_S^T,           (3)
        E ~ N(0, I)

    With g the mean gradient and `lambda = delta_t + damping`, M moves by

        m <- beta_1 m + g + delta_t M                                     (4)
        M <- M - a (A + pi sqrt(lambda) I)^-1 m
                 (S + sqrt(lambda) / pi I)^-1                             (5)

    where `pi^2 = (tr A / dim A) / (tr S / dim S)`, and a is the learning rate
    times the `initial_curvature` plus `delta_t`. All other weights are
    independent, as in `VOGN`.

    The damping in (5) keeps steps short. It is no part of the posterior (3).

    The loss must be the mean negative log-likelihood. The temperature tau
    changes only the likelihood, which is raised to the power 1 / tau. The prior
    stays as it is.

    A matrix `(in, out)` adds `2 in^2 + 2 out^2` numbers. The time of its
    decomposition is proportional to `in^3 + out^3`. For a convolution, `in` is
    the size of its window times the number of its input channels.
    `max_factor_size` bounds `in` and `out`.

    Args:
        initial_curvature: Curvature of each weight before the first step, or
            `"first_batch"`: the first step runs without noise and sets it.
            Defaults to `None`: `8 / sqrt(N)`, or `min(500 / N, 2)` if larger.
        exclude_from_inference: Names of layers, of classes of layers or of
            variables that have neither prior nor noise. A kernel and its bias
            must be excluded together. Defaults to `("BatchNormalization",)`.
        curvature_every: Number of steps from one update (1) and (2) to the
            next. Defaults to `10`.
        update_every: Number of steps from one decomposition of A and S to the
            next. (3) and (5) use the last decomposition. NoisyKFAC also
            decomposes after each update (1) and (2) in the first `update_every`
            steps, and whenever the trace of a factor has grown by a quarter.
            Defaults to `20`.
        max_factor_size: Longest side of a kernel, as a matrix, that gets A and
            S. The weights of larger kernels are independent, as in `VOGN`, and
            a warning names them. `None` means no limit. Defaults to `8192`.

    Example:

    ```python
    model.compile(keras_bdl.NoisyKFAC(prior_precision=50.0), loss=loss)
    model.fit(x, y, epochs=2, verbose=0)
    prediction = keras_bdl.predict(model, x_test, verbose=0)
    ```

    Reference:
        - Zhang et al., [Noisy Natural Gradient as Variational Inference](
          https://arxiv.org/abs/1712.02390), with the prior added to the
          eigenvalues in (3). Adding it to both factors would make the
          posterior too narrow in directions without data.
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), appendix A
    """

    _model = None

    def __init__(
        self,
        *args,
        curvature_every: int = 10,
        update_every: int = 20,
        max_factor_size: int | None = 8192,
        **kwargs,
    ):
        super().__init__(*args, curvature_every=curvature_every, **kwargs)
        check_count("update_every", update_every)
        if max_factor_size is not None:
            check_count("max_factor_size", max_factor_size)
        self.update_every = update_every
        self.max_factor_size = max_factor_size

    def attach(self, model: keras.Model) -> None:
        """Keeps a reference to the model, whose matrices `build` needs.

        Args:
            model: The `keras_bdl.Model` that is compiled with this optimizer.
        """
        self._model = weakref.ref(model)  # the model owns the optimizer

    def add_curvatures(self, variables: list) -> list:
        """Returns the variable of s for each trainable variable, or `None`.

        A kernel or a bias gets `None` if a matrix with Kronecker factors covers
        the variable.
        """
        model = None if self._model is None else self._model()
        self._matrices = (
            [] if model is None else slots_of(self, model, variables)
        )
        self._matrix_of = {i: m for m in self._matrices for i in m.indices}
        others = [i for i in range(len(variables)) if i not in self._matrix_of]
        slots = super().add_curvatures([variables[i] for i in others])
        curvatures = dict(zip(others, slots, strict=True))
        return [curvatures.get(i) for i in range(len(variables))]

    def looked_shapes(self, variables: list) -> list[list]:
        """Returns the shapes of the tensors that `look` finds."""
        shapes = super().looked_shapes(variables)
        for matrix, places in places_of(self._matrices, variables):
            ins, outs = matrix.shape
            of_matrix = [variables[i].shape for i in places]
            for i in places:
                shapes[i] = []
            shapes[places[0]] = [*of_matrix, (ins, ins), (outs, outs)]
        return shapes

    def assign_curvatures(self, value: Any) -> None:
        """Sets the curvature of every weight."""
        super().assign_curvatures(value)
        for matrix in self._matrices:
            matrix.start(value)

    def check(self, variables: list) -> None:
        """Raises if a kernel is excluded without its bias, or the reverse."""
        super().check(variables)
        for matrix in self._matrices:
            matrix.check_excluded_together(self.is_excluded)

    def look(
        self, model: keras.Model, data: Any, draw: Any, loss_scale: Any
    ) -> tuple:
        """Returns the loss, the outputs and a tuple for each variable.

        If a kernel and its bias form a matrix, the tuple of the kernel holds
        the gradients of both, A and S, and the tuple of the bias is empty.
        """
        step = self.captured_step(
            *(model, data, draw, loss_scale),
            statistics="factors",
            max_factor_size=self.max_factor_size,
        )
        found = list(zip(step.gradients, step.squares, strict=True))
        # Factors come in the order of the calls, not in that of the layers.
        factors = {id(f.kernel): f for f in step.factors}
        variables = model.trainable_variables
        for matrix, places in places_of(self._matrices, variables):
            f = factors[id(matrix.kernel)]
            gradients = [found[i][0] for i in places]
            for i in places:
                found[i] = ()
            found[places[0]] = (*gradients, f.inputs, f.outputs)
        return step.loss, step.y_pred, found

    def update_step(self, gradient, variable, learning_rate):
        """Moves a kernel and its bias by (1), (2), (4) and (5)."""
        index = _keras.variable_index(self, variable)
        if index not in self._matrix_of:
            return super().update_step(gradient, variable, learning_rate)
        matrix = self._matrix_of[index]
        *gradients, a, s = gradient
        decay, weight = self.curvature_weights(variable.dtype)
        due = self._decomposes()
        matrix.update(self, (a, s), decay=decay, weight=weight, due=due)
        prior = self.scaled_prior(variable)
        momenta = []
        of_matrix = zip(matrix.indices, matrix.variables, strict=True)
        for (i, v), g in zip(of_matrix, gradients, strict=True):
            g = ops.cast(g, v.dtype)
            m = self.beta_1 * self._momenta[i] + g + prior * v  # (4)
            momenta.append(m)
            self.assign(self._momenta[i], m)
        direction = matrix.precondition(
            matrix.join(momenta), prior + self.damping
        )
        rate = self.step_size(learning_rate, prior)
        steps = matrix.split(rate * direction)
        for v, step in zip(matrix.variables, steps, strict=True):
            self.assign_sub(v, step)  # (5)

    def _decomposes(self):
        # The curvature changes fast in the first steps, and outdated factors
        # may make samples far too wide.
        t, every = self.iterations, self.update_every
        early = ops.logical_and(t < every, self.is_due())
        return ops.logical_or(early, ops.equal(ops.mod(t, every), 0))

    def draw(
        self,
        variables: list,
        stream: int,
        number: int,
        scores: bool = False,
    ) -> Any:
        """Returns one posterior sample (3), a list of tensors."""
        values = current_values(variables)
        noises = {}
        drawn = [i for i, v in enumerate(variables) if not self.is_excluded(v)]
        if drawn and (self.noisy_training or stream == EVALUATION):
            shapes = [tuple(variables[i].shape) for i in drawn]
            bits = self.bits(sum(map(math.prod, shapes)), stream, number)
            numbers = draw_numbers(bits)
            noise = split_numbers(numbers, shapes)
            noises = {
                i: ops.cast(e, variables[i].dtype)
                for i, e in zip(drawn, noise, strict=True)
            }
            self._correlate(variables, noises)
        pairs = enumerate(values)
        return [v + noises[i] if i in noises else v for i, v in pairs]

    def _correlate(self, variables, noises):
        """Turns standard normal noise into noise of the posterior."""
        factor = self.noise_variance()
        drawn, covered = self._drawn_matrices(variables)
        for i in noises.keys() - covered:
            precision = self.precision(variables[i])
            noises[i] *= ops.sqrt(ops.cast(factor, precision.dtype) / precision)
        for matrix, places in drawn:
            noise = matrix.join([noises[i] for i in places])
            prior = self.scaled_prior(matrix.kernel)
            noise = matrix.correlated(noise, factor, prior)
            noises.update(zip(places, matrix.split(noise), strict=True))

    def _drawn_matrices(self, variables):
        """Returns matrices with their places, and the set of all places."""
        pairs = places_of(self._matrices, variables)
        drawn = [p for p in pairs if not self.is_excluded(p[0].kernel)]
        return drawn, {i for _, places in drawn for i in places}

    def posterior(self, model: keras.Model) -> MatrixNormal:
        """Returns the `keras_bdl.posteriors.MatrixNormal` that was learned.

        Args:
            model: The trained model.
        """
        self.check_learned()
        variables = self.learned(model)
        drawn, covered = self._drawn_matrices(variables)
        factor = self.noise_variance()
        posterior = MatrixNormal(
            [ops.convert_to_numpy(v) for v in variables],
            [
                m.covariance(places, factor, self.scaled_prior(m.kernel))
                for m, places in drawn
            ],
            variance=[
                None if i in covered else self.variance(v)
                for i, v in enumerate(variables)
            ],
            names=[v.name for v in variables],
            trained_under_draws=self.noisy_training,
        )
        return posterior.beside_frozen_weights_of(model, variables)

    def get_config(self):
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "update_every": self.update_every,
            "max_factor_size": self.max_factor_size,
        }
