"""Noisy K-FAC and K-FAC: natural gradients with Kronecker factors."""

import math
import warnings
import weakref
from typing import Any
from typing import Literal
from typing import Unpack

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._arguments import check_count
from keras_bdl._backend import tensor
from keras_bdl._random._noise import EVALUATION
from keras_bdl._random._noise import draw_numbers
from keras_bdl._random._noise import split_numbers
from keras_bdl.curvature._capture import Plan
from keras_bdl.curvature._rule import counted_as_trained
from keras_bdl.optimizers._natural_gradient import NaturalGradientOptions
from keras_bdl.optimizers._vogn import VOGN
from keras_bdl.posteriors import MatrixNormal
from keras_bdl.posteriors._gaussian import KroneckerBlock

# A factor is decomposed again once its trace has grown by this ratio. Steps
# divide by the decomposed curvature: if that is too small, steps are too long
# and raise the true curvature further.
_MOST_GROWTH = 1.25


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

    The loss must be the mean negative log-likelihood. The temperature tau
    changes only the likelihood, which is raised to the power 1 / tau. The prior
    stays as it is.

    A matrix `(in, out)` adds `2 in^2 + 2 out^2` numbers. The time of its
    decomposition is proportional to `in^3 + out^3`. For a convolution, `in` is
    the size of its window times the number of its input channels.
    `max_factor_size` bounds `in` and `out`.

    Args:
        learning_rate: Float or schedule. Defaults to `0.05`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            `keras_bdl.Model.fit` counts them.
        beta_2: Decay of the curvature, near 1 for a long memory. Defaults to
            `0.999`.
        initial_curvature: Curvature of each weight before the first step, or
            `"first_batch"`: the first step runs without noise and sets it.
            Defaults to `None`: `12 / sqrt(N)`, or `min(1500 / N, 2)` if larger.
        damping: Makes steps (5) shorter and is not part of the posterior (3).
            Defaults to `1e-3`.
        curvature_every: Number of steps from one update (1) and (2) to the
            next. Defaults to `10`.
        update_every: Number of steps from one decomposition of A and S to the
            next. (3) and (5) use the last decomposition. NoisyKFAC also
            decomposes after each update (1) and (2) in the first `update_every`
            steps, and whenever the trace of a factor has grown by a quarter.
            Defaults to `20`.
        max_factor_size: Longest side of a kernel, as a matrix, that gets A and
            S. The weights of larger kernels are independent, as in `VOGN`, and
            a warning names them. `None` means no limit. Defaults to `1024`:
            a decomposition then takes less than a second on one core.
        fallback: What to do with layers that have no rule, as in `VOGN`.
            Defaults to `"auto"`.
        **options: Those of `keras_bdl.extend.NaturalGradientOptions`.

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

    _model: Any = None

    def __init__(
        self,
        learning_rate: FloatOrSchedule = 0.05,
        dataset_size: int | None = None,
        *,
        beta_2: float = 0.999,
        initial_curvature: float | Literal["first_batch"] | None = None,
        damping: float = 1e-3,
        curvature_every: int = 10,
        update_every: int = 20,
        max_factor_size: int | None = 1024,
        fallback: bool | Literal["auto"] = "auto",
        **options: Unpack[NaturalGradientOptions],
    ):
        super().__init__(
            learning_rate,
            dataset_size,
            beta_2=beta_2,
            initial_curvature=initial_curvature,
            damping=damping,
            curvature_every=curvature_every,
            fallback=fallback,
            **options,
        )
        check_count("update_every", update_every)
        if max_factor_size is not None:
            check_count("max_factor_size", max_factor_size)
        self.update_every = update_every
        self.max_factor_size = max_factor_size

    def attach(self, model: keras.Model) -> None:
        """Keeps a reference to the model, whose matrices `build` needs."""
        self._model = weakref.ref(model)  # the model owns the optimizer

    def add_curvatures(self, variables: list) -> list:
        """Returns the variable of s for each trainable variable, or `None`.

        A kernel or a bias gets `None` if a matrix with Kronecker factors covers
        the variable.
        """
        model = None if self._model is None else self._model()
        self._matrices = (
            [] if model is None else _matrices_of(self, model, variables)
        )
        self._matrix_of = {i: m for m in self._matrices for i in m.indices}
        others = [i for i in range(len(variables)) if i not in self._matrix_of]
        slots = super().add_curvatures([variables[i] for i in others])
        curvatures = dict(zip(others, slots, strict=True))
        return [curvatures.get(i) for i in range(len(variables))]

    def assign_curvatures(self, value: Any) -> None:
        """Sets the curvature of every weight."""
        super().assign_curvatures(value)
        for matrix in self._matrices:
            matrix.start(value)

    def check(self, variables: list) -> None:
        """Raises if a kernel is excluded without its bias, or the reverse."""
        super().check(variables)
        for matrix in self._matrices:
            if len({self.is_excluded(v) for v in matrix.variables}) > 1:
                raise ValueError(
                    "`exclude_from_inference` must name both the kernel and "
                    "the bias of a layer, or neither: they are one matrix. "
                    f"Received: one of {[v.path for v in matrix.variables]}"
                )

    def statistics_shapes(self, variables: list) -> list[list]:
        """Returns the shapes of the tensors of `batch_statistics`."""
        shapes = super().statistics_shapes(variables)
        for matrix, places in _places_of(self._matrices, variables):
            ins, outs = matrix.shape
            of_matrix = [variables[i].shape for i in places]
            for i in places:
                shapes[i] = []
            shapes[places[0]] = [*of_matrix, (ins, ins), (outs, outs)]
        return shapes

    def batch_statistics(
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
        for matrix, places in _places_of(self._matrices, variables):
            f = factors[id(matrix.kernel)]
            gradients = [found[i][0] for i in places]
            for i in places:
                found[i] = ()
            found[places[0]] = (*gradients, f.inputs, f.outputs)
        return step.loss, step.y_pred, found

    def update_step(
        self, gradient: Any, variable: Any, learning_rate: Any
    ) -> None:
        """Moves a kernel and its bias by (1), (2), (4) and (5)."""
        index = _keras.variable_index(self, variable)
        if index not in self._matrix_of:
            super().update_step(gradient, variable, learning_rate)
            return
        matrix = self._matrix_of[index]
        *gradients, a, s = gradient
        decay, weight = self.curvature_weights(variable.dtype)
        matrix.update((a, s), decay, weight, self._decomposes())
        prior = self.scaled_prior(variable)
        momenta = []
        of_matrix = zip(matrix.indices, matrix.variables, strict=True)
        for (i, v), g in zip(of_matrix, gradients, strict=True):
            g = ops.cast(g, v.dtype)
            m = self.beta_1 * self._momenta[i] + g + prior * v  # (4)
            momenta.append(m)
            self.assign(self._momenta[i], m)
        rate = self.step_size(learning_rate, prior)
        direction = matrix.precondition(
            matrix.join(momenta), prior + self.damping
        )
        steps = matrix.split(rate * direction)
        for v, step in zip(matrix.variables, steps, strict=True):
            self.assign_sub(v, step)  # (5)

    def _decomposes(self) -> Any:
        # The curvature changes fast in the first steps, and outdated factors
        # may make samples far too wide.
        t, every = self.iterations, self.update_every
        early = ops.logical_and(t < every, self.is_due())
        return ops.logical_or(early, ops.equal(ops.mod(t, every), 0))

    def draw(
        self, variables: list, stream: int, number: int, scores: bool = False
    ) -> Any:
        """Returns one posterior sample (3), a list of tensors."""
        values: list = [tensor(v) for v in variables]
        places = [i for i, v in enumerate(variables) if not self.is_excluded(v)]
        if not places or not (self.noisy_training or stream == EVALUATION):
            return values
        shapes = [tuple(variables[i].shape) for i in places]
        bits = self.bits(sum(map(math.prod, shapes)), stream, number)
        numbers = split_numbers(draw_numbers(bits), shapes)
        noises = {
            i: ops.cast(e, variables[i].dtype)
            for i, e in zip(places, numbers, strict=True)
        }
        factor = self.noise_variance()
        drawn, covered = self._drawn_matrices(variables)
        for i in noises.keys() - covered:
            precision = self.precision(variables[i])
            noises[i] *= ops.sqrt(ops.cast(factor, precision.dtype) / precision)
        for matrix, of_matrix in drawn:
            noise = matrix.join([noises[i] for i in of_matrix])
            prior = self.scaled_prior(matrix.kernel)
            noise = matrix.correlated(noise, factor, prior)
            noises.update(zip(of_matrix, matrix.split(noise), strict=True))
        for i, noise in noises.items():
            values[i] = values[i] + noise
        return values

    def _drawn_matrices(self, variables: Any) -> Any:
        """Returns matrices with their places, and the set of all places."""
        pairs = _places_of(self._matrices, variables)
        drawn = [p for p in pairs if not self.is_excluded(p[0].kernel)]
        return drawn, {i for _, places in drawn for i in places}

    def fitted_gaussian(
        self, model: keras.Model, variables: list, **options: Any
    ) -> Any:
        """Returns the `keras_bdl.posteriors.MatrixNormal` over some weights."""
        drawn, covered = self._drawn_matrices(variables)
        factor = self.noise_variance()
        return MatrixNormal(
            [ops.convert_to_numpy(v) for v in variables],
            [
                m.covariance(places, factor, self.scaled_prior(m.kernel))
                for m, places in drawn
            ],
            variance=[
                None if i in covered else self.variance(v)
                for i, v in enumerate(variables)
            ],
            **options,
        )

    def get_config(self) -> dict:
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "update_every": self.update_every,
            "max_factor_size": self.max_factor_size,
        }


@keras.saving.register_keras_serializable(package="keras_bdl")
class KFAC(NoisyKFAC):
    """K-FAC: `NoisyKFAC` without noise in the weights.

    Use K-FAC first if `NoisyKFAC` does not train. Both classes take the same
    arguments: tune the arguments with `KFAC`, then change the class to
    `NoisyKFAC`.

    Training uses the means, `W = M`. Everything else is as in `NoisyKFAC`.
    `keras_bdl.predict` uses the means, as for `OGN`. The curvature is the
    empirical Fisher information, which uses the targets of the data.
    `keras_bdl.fit_laplace` instead averages over targets that the trained
    model predicts.

    Args:
        **options: Those of `keras_bdl.NoisyKFAC`, and those of
            `keras_bdl.extend.NaturalGradientOptions`.

    Example:

    ```python
    model.compile(keras_bdl.KFAC(prior_precision=50.0), loss=loss)
    model.fit(x, y, epochs=2, verbose=0)
    ```

    Reference:
        - Martens and Grosse, [Optimizing Neural Networks with
          Kronecker-factored Approximate Curvature](
          https://arxiv.org/abs/1503.05671)
        - Grosse and Martens, [A Kronecker-factored approximate Fisher matrix
          for convolution layers](https://arxiv.org/abs/1602.01407)
    """

    noisy_training = False


class MatrixState:
    """The Kronecker factors of one weight matrix, in an optimizer's variables.

        A = Q_A diag(a) Q_A^T,   S = Q_S diag(s) Q_S^T                    (1)

    Q, a and s come from the last decomposition. The averages A and S may be
    newer: a decomposition takes much longer than their update. `indices` are
    those of the kernel and the bias among the variables of the optimizer. Keras
    does not track this plain object.
    """

    def __init__(self, optimizer: Any, matrix: Any):
        self.kernel, self.bias = matrix.kernel, matrix.bias
        self.variables, self.shape = matrix.variables, matrix.shape
        self.indices = [
            _keras.variable_index(optimizer, v) for v in matrix.variables
        ]
        self._optimizer = optimizer
        name = matrix.kernel.path.replace("/", "_")

        def added(shape: Any, initializer: Any, suffix: Any) -> Any:
            return optimizer.add_variable(
                shape,
                initializer,
                dtype=matrix.kernel.dtype,
                name=f"{name}_{suffix}",
            )

        def eye(shape: Any, dtype: Any) -> Any:
            return ops.eye(shape[0], dtype=dtype)

        # The factor of inputs is (in, in), that of outputs (out, out).
        sides = list(zip(self.shape, ("inputs", "outputs"), strict=True))
        self.factors = [added((n, n), "zeros", side) for n, side in sides]
        self._vectors = [added((n, n), eye, f"{s}_vectors") for n, s in sides]
        self._values = [added((n,), "zeros", f"{s}_values") for n, s in sides]

    def start(self, curvature: Any) -> None:
        """Sets A and S to the same multiple of the identity."""
        for factor, values in zip(self.factors, self._values, strict=True):
            root = ops.cast(ops.sqrt(curvature), factor.dtype)
            factor.assign(root * ops.eye(factor.shape[0], dtype=factor.dtype))
            values.assign(ops.full(values.shape, root, dtype=values.dtype))

    def join(self, parts: list) -> Any:
        """Returns the tensors of kernel and bias as one matrix `(in, out)`."""
        rows = [ops.reshape(part, (-1, self.shape[1])) for part in parts]
        return ops.concatenate(rows, axis=0)

    def split(self, matrix: Any) -> list:
        """Returns a matrix `(in, out)` as the tensors of kernel and bias."""
        if self.bias is None:
            return [ops.reshape(matrix, self.kernel.shape)]
        return [
            ops.reshape(matrix[:-1], self.kernel.shape),
            ops.reshape(matrix[-1], self.bias.shape),
        ]

    def update(self, found: tuple, decay: Any, weight: Any, due: Any) -> None:
        """Sets the averages to `decay old + weight found`.

        If `due` is false, they are decomposed only if one has grown.
        """
        new = [
            decay * old + weight * ops.cast(f, old.dtype)
            for old, f in zip(self.factors, found, strict=True)
        ]
        grown = [
            ops.trace(f) > _MOST_GROWTH * ops.sum(values)
            for f, values in zip(new, self._values, strict=True)
        ]

        def decomposed() -> Any:
            values, vectors = zip(*map(_eigh, new), strict=True)
            return [*values, *vectors]

        def kept() -> Any:
            return [tensor(v) for v in (*self._values, *self._vectors)]

        due = ops.logical_or(due, ops.logical_or(*grown))
        results = ops.cond(due, decomposed, kept)
        targets = [*self.factors, *self._values, *self._vectors]
        for variable, value in zip(targets, [*new, *results], strict=True):
            self._optimizer.assign(variable, value)

    def precondition(self, matrix: Any, damping: Any) -> Any:
        """Returns a matrix M times the inverses of the damped factors.

        (A + pi sqrt(damping) I)^-1 M (S + sqrt(damping) / pi I)^-1,
        pi^2 = (tr A / dim A) / (tr S / dim S)                        (2)
        """
        a, s = self._eigenvalues()
        ratio = ops.divide_no_nan(ops.mean(a), ops.mean(s))
        pi = ops.where(ratio > 0, ops.sqrt(ratio), 1.0)
        root = ops.sqrt(damping)
        scale = 1.0 / ((a + pi * root) * (s + root / pi))
        return self._scaled(matrix, scale)  # (2)

    def correlated(self, noise: Any, factor: Any, prior: Any) -> Any:
        """Turns standard normal noise E into noise of the posterior.

            sqrt(factor) Q_A [ (Q_A^T E Q_S)_jk / sqrt(a_j s_k + prior) ] Q_S^T
                                                                          (3)

        The product `Q_A^T E Q_S` is as standard normal as E. With this product,
        (3) is the symmetric root of the covariance times E. Without it, the
        noise would depend on the signs of the eigenvectors, and on the basis of
        an eigenspace, which each program chooses in its own way.
        """
        stddev = ops.sqrt(self._variances(factor, prior))
        return self._scaled(noise, stddev)  # (3)

    def covariance(
        self, places: list, factor: Any, prior: Any
    ) -> KroneckerBlock:
        """Returns the covariance of (3); `places` are those of `variables`."""
        kernel, *bias = places
        vectors = [tensor(v) for v in self._vectors]
        tensors = (*vectors, self._variances(factor, prior))
        arrays = map(ops.convert_to_numpy, tensors)
        return KroneckerBlock(kernel, bias[0] if bias else None, *arrays)

    def _eigenvalues(self) -> Any:
        """Returns a of (1) as a column, and s as a row."""
        a, s = (tensor(v) for v in self._values)
        return a[:, None], s[None, :]

    def _variances(self, factor: Any, prior: Any) -> Any:
        """Returns the squares of the factors of `Q_A^T E Q_S` in (3)."""
        a, s = self._eigenvalues()
        return ops.cast(factor, a.dtype) / (a * s + prior)

    def _scaled(self, matrix: Any, scale: Any) -> Any:
        """Returns a matrix, multiplied by `scale` in the eigenbases."""
        q_a, q_s = (tensor(v) for v in self._vectors)
        inside = scale * (ops.transpose(q_a) @ matrix @ q_s)
        return q_a @ inside @ ops.transpose(q_s)


def _matrices_of(optimizer: Any, model: Any, variables: Any) -> Any:
    """Returns the `MatrixState` of all matrices of some variables.

    Kernels with a side above `optimizer.max_factor_size` are left out, and a
    warning names them. The variables may be frozen now.
    """
    limit = optimizer.max_factor_size or math.inf
    found, too_large = [], []
    with counted_as_trained(variables):
        plan = Plan(model, fallback=optimizer.fallback, variables=variables)
        known = [m for rule in plan.rules for m in plan.matrices(*rule)]
    for matrix in known:
        if max(matrix.kernel_shape) > limit:
            too_large.append(f"{matrix.kernel.path} {matrix.kernel_shape}")
        else:
            found.append(MatrixState(optimizer, matrix))
    if too_large:
        warnings.warn(
            f"`{type(optimizer).__name__}` fits independent weights to "
            f"{', '.join(too_large)}, with a side longer than "
            f"`max_factor_size`, {limit:,}. Kronecker factors of longer sides "
            "need more memory and time",
            stacklevel=2,
        )
    return found


def _places_of(matrices: Any, variables: Any) -> Any:
    """Returns pairs: a matrix, and the indices of its weights in `variables`.

    Matrices of frozen layers are left out.
    """
    place = {id(v): i for i, v in enumerate(variables)}
    found = []
    for matrix in matrices:
        places = [place[id(v)] for v in matrix.variables if id(v) in place]
        if len(places) == len(matrix.variables):
            found.append((matrix, places))
        elif places:
            raise ValueError(
                "The kernel and the bias of a layer form one matrix. They must "
                "be frozen together, or before the model is compiled. "
                "Received: only one of "
                f"{[v.path for v in matrix.variables]} is trainable"
            )
    return found


def _eigh(factor: Any) -> Any:
    """Returns the eigenvalues, at least zero, and the eigenvectors."""
    # A diverged training shows NaN, as with any optimizer. On a CPU, `eigh`
    # would raise an error instead.
    finite = ops.all(ops.isfinite(factor))
    values, vectors = ops.eigh(ops.where(finite, factor, 0.0))
    # Rounding makes some zeros negative.
    values = ops.maximum(values, 0.0)
    return ops.where(finite, values, float("nan")), vectors
