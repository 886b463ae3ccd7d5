"""Kronecker factors of a weight matrix, and their eigendecompositions."""

import math
import warnings

import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.curvature._capture import Plan
from keras_bdl.curvature._rule import counted_as_trained
from keras_bdl.posteriors._gaussian import KroneckerBlock

# A factor is decomposed again once its trace has grown by this ratio.
_MOST_GROWTH = 1.25


class MatrixSlots:
    """Moving averages of the Kronecker factors, and their eigenvectors.

        A = Q_A diag(a) Q_A^T,   S = Q_S diag(s) Q_S^T                    (1)

    Q, a and s come from the last decomposition. The averages A and S may be
    newer: a decomposition takes much longer than their update. This is a plain
    object: the optimizer owns the variables.

    Args:
        optimizer: The owner of the variables.
        matrix: A `keras_bdl.curvature._capture.Matrix`.
        indices: Indices of the kernel and of the bias among the trainable
            variables. A matrix without a bias has one index.
    """

    def __init__(self, optimizer, matrix, *, indices: list):
        self.indices = indices
        self.kernel = matrix.kernel
        self.bias = matrix.bias
        self.variables = matrix.variables
        self.shape = matrix.shape
        name = matrix.kernel.path.replace("/", "_")

        def square(n, factor, suffix):
            return optimizer.add_variable(
                (n, n),
                lambda shape, dtype: factor * ops.eye(shape[0], dtype=dtype),
                dtype=matrix.kernel.dtype,
                name=f"{name}_{suffix}",
            )

        def vector(n, suffix):
            return optimizer.add_variable(
                (n,),
                lambda shape, dtype: ops.zeros(shape, dtype),
                dtype=matrix.kernel.dtype,
                name=f"{name}_{suffix}",
            )

        # The factor of inputs is (in, in), that of outputs (out, out).
        names = ("inputs", "outputs")
        sides = list(zip(self.shape, names, strict=True))
        self.factors = [square(n, 0.0, side) for n, side in sides]
        self._vectors = [square(n, 1.0, f"{s}_vectors") for n, s in sides]
        self._values = [vector(n, f"{s}_values") for n, s in sides]

    def check_excluded_together(self, is_excluded):
        """Raises if the kernel is excluded without the bias, or the reverse.

        Args:
            is_excluded: Function that returns whether a variable is excluded
                from inference.
        """
        if len({is_excluded(v) for v in self.variables}) > 1:
            raise ValueError(
                "`exclude_from_inference` must name both the kernel and the "
                "bias of a layer, or neither: they are one matrix. "
                f"Received: one of {[v.path for v in self.variables]}"
            )

    def start(self, curvature):
        """Sets A and S to the same multiple of the identity.

        Args:
            curvature: The curvature of each weight, a number.
        """
        for factor, values in zip(self.factors, self._values, strict=True):
            root = ops.cast(ops.sqrt(curvature), factor.dtype)
            factor.assign(root * ops.eye(factor.shape[0], dtype=factor.dtype))
            values.assign(ops.full_like(values, root))

    def join(self, parts):
        """Returns the tensors of kernel and bias as one matrix `(in, out)`.

        Args:
            parts: A list with the tensor of the kernel and, if the matrix has
                a bias, the tensor of the bias.
        """
        rows = [ops.reshape(part, (-1, self.shape[1])) for part in parts]
        return ops.concatenate(rows, axis=0)

    def split(self, matrix):
        """Returns a matrix as a list of tensors for kernel and bias.

        Args:
            matrix: A tensor `(in, out)`.
        """
        if self.bias is None:
            return [ops.reshape(matrix, self.kernel.shape)]
        return [
            ops.reshape(matrix[:-1], self.kernel.shape),
            ops.reshape(matrix[-1], self.bias.shape),
        ]

    def eigenvalues(self):
        """Returns a of (1) as a column, and s as a row."""
        a, s = (tf.convert_to_tensor(v.value) for v in self._values)
        return a[:, None], s[None, :]

    def eigenvectors(self):
        """Returns Q_A and Q_S of (1)."""
        return [tf.convert_to_tensor(v.value) for v in self._vectors]

    def update(self, optimizer, found, *, decay, weight, due):
        """Adds the factors of a step to the averages.

        Args:
            optimizer: The owner of the variables.
            found: A and S of the step.
            decay: Factor of the averages.
            weight: Factor of the new A and S.
            due: A boolean tensor: whether to decompose the averages in any
                case. If false, they are decomposed only if one has grown.
        """
        new = [
            decay * old + weight * ops.cast(f, old.dtype)
            for old, f in zip(self.factors, found, strict=True)
        ]

        def decomposed():
            values, vectors = zip(*map(_eigh, new), strict=True)
            return list(values), list(vectors)

        def kept():
            return (
                [tf.convert_to_tensor(v.value) for v in self._values],
                self.eigenvectors(),
            )

        due = ops.logical_or(due, self._has_grown(new))
        values, vectors = tf.cond(due, decomposed, kept)
        for variables, tensors in (
            (self.factors, new),
            (self._values, values),
            (self._vectors, vectors),
        ):
            for variable, tensor in zip(variables, tensors, strict=True):
                optimizer.assign(variable, tensor)

    def _has_grown(self, factors):
        """Returns whether a factor has grown since its decomposition.

        Steps divide by the decomposed curvature. If that curvature is too
        small, steps are too long and raise the true curvature further.
        """
        grown = [
            ops.trace(f) > _MOST_GROWTH * ops.sum(values)
            for f, values in zip(factors, self._values, strict=True)
        ]
        return ops.logical_or(*grown)

    def precondition(self, matrix, damping):
        """Returns a matrix times the inverses of the damped factors.

            (A + pi sqrt(damping) I)^-1 M (S + sqrt(damping) / pi I)^-1,
            pi^2 = (tr A / dim A) / (tr S / dim S)                        (2)

        Args:
            matrix: M, a tensor `(in, out)`.
            damping: The damping, a number.
        """
        a, s = self.eigenvalues()
        ratio = tf.math.divide_no_nan(ops.mean(a), ops.mean(s))
        pi = ops.where(ratio > 0, ops.sqrt(ratio), 1.0)
        root = ops.sqrt(damping)
        scale = 1.0 / ((a + pi * root) * (s + root / pi))
        return self._scaled(matrix, scale)  # (2)

    def correlated(self, noise, factor, prior):
        """Turns standard normal noise into noise of the posterior.

            sqrt(factor) Q_A [ (Q_A^T E Q_S)_jk / sqrt(a_j s_k + prior) ] Q_S^T
                                                                          (3)

        The product `Q_A^T E Q_S` is as standard normal as E. With this product,
        (3) is the symmetric root of the covariance times E. Without it, the
        noise would depend on the signs of the eigenvectors, and on the basis of
        an eigenspace, which each program chooses in its own way.

        Args:
            noise: E, standard normal numbers `(in, out)`.
            factor: `tau / (rho N)`, a number.
            prior: The scaled prior precision delta_t, a number.
        """
        stddev = ops.sqrt(self.variances(factor, prior))
        return self._scaled(noise, stddev)  # (3)

    def _scaled(self, matrix, scale):
        """Returns a matrix, multiplied by `scale` in the eigenbases."""
        q_a, q_s = self.eigenvectors()
        inside = scale * (ops.transpose(q_a) @ matrix @ q_s)
        return q_a @ inside @ ops.transpose(q_s)

    def variances(self, factor, prior):
        """Returns the squares of the factors of `Q_A^T E Q_S` in (3).

        Args:
            factor: `tau / (rho N)`, a number.
            prior: The scaled prior precision delta_t, a number.
        """
        a, s = self.eigenvalues()
        return ops.cast(factor, a.dtype) / (a * s + prior)

    def covariance(self, places, factor, prior):
        """Returns the `keras_bdl.extend.KroneckerBlock` of (3).

        Args:
            places: Positions of `variables` in the posterior.
            factor: `tau / (rho N)`, a number.
            prior: The scaled prior precision delta_t, a number.
        """
        kernel, *bias = places
        tensors = (*self.eigenvectors(), self.variances(factor, prior))
        arrays = map(ops.convert_to_numpy, tensors)
        return KroneckerBlock(kernel, bias[0] if bias else None, *arrays)


def slots_of(optimizer, model, variables):
    """Returns the `MatrixSlots` of all matrices of some variables.

    Kernels with a side above `optimizer.max_factor_size` are left out, and a
    warning names them.

    Args:
        optimizer: The owner of the variables.
        model: A built Keras model.
        variables: The variables of the optimizer. They may be frozen now.
    """
    limit = optimizer.max_factor_size or math.inf
    found, too_large = [], []
    with counted_as_trained(variables):
        plan = Plan(model, fallback=optimizer.fallback, variables=variables)
        known = [m for rule in plan.rules for m in plan.matrices(*rule)]
    for matrix in known:
        if max(matrix.kernel_shape) > limit:
            too_large.append(f"{matrix.kernel.path} {matrix.kernel_shape}")
            continue
        indices = [
            _keras.variable_index(optimizer, v) for v in matrix.variables
        ]
        found.append(MatrixSlots(optimizer, matrix, indices=indices))
    if too_large:
        warnings.warn(
            f"`{type(optimizer).__name__}` fits independent weights to "
            f"{', '.join(too_large)}, with a side longer than "
            f"`max_factor_size`, {limit:,}. Kronecker factors of longer sides "
            "need more memory and time",
            stacklevel=2,
        )
    return found


def places_of(matrices, variables):
    """Returns pairs: a matrix, and the indices of its weights in `variables`.

    Matrices of frozen layers are left out.

    Args:
        matrices: A list of `MatrixSlots`.
        variables: The trainable variables.
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


def _eigh(factor):
    """Returns the eigenvalues, at least zero, and the eigenvectors."""
    # A diverged training shows NaN, as with any optimizer. On a CPU, `eigh`
    # would raise an error instead.
    finite = ops.all(ops.isfinite(factor))
    values, vectors = tf.linalg.eigh(ops.where(finite, factor, 0.0))
    # Rounding makes some zeros negative.
    values = ops.maximum(values, 0.0)
    return ops.where(finite, values, float("nan")), vectors
