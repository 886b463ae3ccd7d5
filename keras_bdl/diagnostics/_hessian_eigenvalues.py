"""The smallest and the largest eigenvalue of the Hessian of the loss."""

import contextlib
import dataclasses
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._aliases import Data
from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_seed
from keras_bdl._arguments import check_verbose
from keras_bdl._backend import hvp
from keras_bdl._data._batches import TrainingData
from keras_bdl._reports import NOT_A_NUMBER
from keras_bdl._reports import Report
from keras_bdl.diagnostics._training_loss import TrainingLoss
from keras_bdl.diagnostics._training_loss import left_as_it_was
from keras_bdl.diagnostics._training_loss import num_examples
from keras_bdl.diagnostics._weight_vectors import as_arrays
from keras_bdl.diagnostics._weight_vectors import eigenpairs
from keras_bdl.objectives._hessian_diagonal import exact_moments


@dataclasses.dataclass(frozen=True, eq=False)
class HessianEigenvaluesReport(Report):
    """Extreme eigenvalues, made by `hessian_eigenvalues`.

    `to_dict` leaves the vectors out, because each vector has an entry for each
    weight of the network.

    Attributes:
        examples: Number of examples.
        size: Number of weights.
        products: Number of products with the Hessian that were computed.
        minimum: The least eigenvalue.
        maximum: The largest eigenvalue.
        residuals: `|H e - lambda e|` of both: an exact eigenvalue lies within
            this distance of each.
        vectors: Array `(2, size)` of the unit eigenvectors.
        shapes: Shapes of the trainable variables.
    """

    examples: int
    size: int
    products: int
    minimum: float
    maximum: float
    residuals: list
    vectors: np.ndarray = dataclasses.field(repr=False, metadata=NOT_A_NUMBER)
    shapes: list = dataclasses.field(repr=False, metadata=NOT_A_NUMBER)

    def directions(self) -> list:
        """Returns both eigenvectors as lists of arrays, the least first."""
        return [as_arrays(vector, self.shapes) for vector in self.vectors]

    def title(self) -> str:
        return (
            f"Hessian of the loss of {self.examples} examples, {self.size} "
            f"weights, {self.products} products"
        )

    def sections(self) -> list:
        return [
            (
                "Ends of the spectrum",
                [
                    ["", "eigenvalue", "residual"],
                    ["minimum", self.minimum, self.residuals[0]],
                    ["maximum", self.maximum, self.residuals[1]],
                ],
            )
        ]


class HessianProduct(TrainingLoss):
    """Products of the Hessian with a vector, batch by batch.

        H v = sum_b (n_b / N) d/dw (g_b' v)                               (1)

    with g_b the gradient of batch b and n_b its number of examples.
    """

    def over(self, data: TrainingData, vector: np.ndarray) -> np.ndarray:
        """Returns (1) as a vector of float64."""
        vector = ops.convert_to_tensor(vector, "float32")
        total = ops.zeros_like(vector)
        for batch in data:
            total = self(batch, vector, total)
        return total.numpy().astype("float64") / data.examples

    def _step(self, batch: Any, vector: Any, total: Any) -> Any:
        def loss() -> Any:
            found = self.forward(batch)
            return found.loss + found.penalty

        variables = self.model.trainable_variables
        parts, start = [], 0
        for variable in variables:
            end = start + math.prod(variable.shape)
            parts.append(ops.reshape(vector[start:end], variable.shape))
            start = end
        # With `training=False`, the statistics are constants.
        moments = exact_moments if self._training else contextlib.nullcontext
        with moments():
            columns = hvp(loss, variables, parts)
        column = ops.concatenate(
            [ops.reshape(ops.cast(c, "float32"), [-1]) for c in columns]
        )
        return total + num_examples(batch) * column  # (1)


# Relative error of products in float32.
_ROUNDING = 1e-5


def hessian_eigenvalues(
    model: keras.Model,
    data: Data,
    *,
    loss: Loss | None = None,
    weight_decay: float = 0.0,
    training: bool = False,
    tolerance: float = 1e-3,
    max_restarts: int = 100,
    seed: int = 0,
    batch_size: int | None = None,
    verbose: int | str = "auto",
) -> HessianEigenvaluesReport:
    """Returns the least and the largest eigenvalue of the Hessian of the loss.

    Use it to test whether a Gaussian can approximate the posterior around the
    weights of a model. A negative eigenvalue shows that no Gaussian can. With L
    the mean loss over all data, including regularizers and the term a/2 |w|^2
    of the `weight_decay`, the Hessian

        H = d^2 L / dw^2,    H e = lambda e                               (1)

    is never computed as a matrix. Products `H v` are sums over the batches. The
    Lanczos method finds the eigenvalue lambda_1 of largest magnitude, and then
    the eigenvalue of largest magnitude of

        H - lambda_1 I                                                    (2)

    The sum of both eigenvalues is the other end of the spectrum. The error of
    both ends is relative to the width of the spectrum: for a smallest
    eigenvalue near zero, float32 cannot reach a small error relative to the
    eigenvalue itself.

    Args:
        model: A built Keras model with ordinary weights, which do not change.
        data: The training data `(x, y)` or `(x, y, sample_weight)` as arrays,
            or a batched `tf.data.Dataset` or `keras.utils.PyDataset`. All data
            are read for each product, so use neither augmentation nor
            shuffling.
        loss: The negative log-likelihood, as `compile` takes it. Defaults to
            `None`, the loss that the model is compiled with.
        weight_decay: a, for all trainable variables. Defaults to `0.0`.
        training: Whether BatchNorm uses the statistics of each batch and
            dropout is active, with the same mask in every product. Defaults to
            `False`: BatchNorm uses its moving statistics as constants. H is
            then the Hessian of another function than the training loss, often
            with much larger eigenvalues.
        tolerance: Largest error of an eigenvector, `|H e - lambda e|`, relative
            to the magnitude of the eigenvalue of (1) or (2). The error of an
            eigenvalue is of the order of the square of this relative error. In
            float32, values below `1e-5` are hardly reached. Defaults to `1e-3`.
        max_restarts: Largest number of restarts of the Lanczos method, each of
            about 20 products. If these are not enough, the function raises a
            `RuntimeError`. Defaults to `100`.
        seed: Seed of the first vector. Defaults to `0`.
        batch_size: Batch size for arrays. Defaults to `None`, 32.
        verbose: `0` for silence, `1` for a progress bar that counts products,
            `2` for one line. Defaults to `"auto"`, `1`.

    Returns:
        A `HessianEigenvaluesReport`, which prints as a table. The function
        needs the memory of 20 float64 vectors with one entry per weight.

    Example:

    ```python
    report = keras_bdl.diagnostics.hessian_eigenvalues(model, (x, y))
    report.minimum, report.maximum
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.2
    """
    product = HessianProduct.of(model, loss, check_bool("training", training))
    check_number("weight_decay", weight_decay, at_least=0.0)
    check_number("tolerance", tolerance, above=0.0, below=1.0)
    check_seed(seed)
    check_count("max_restarts", max_restarts)
    bar = keras.utils.Progbar(
        None, verbose=check_verbose(verbose), unit_name="product"
    )
    data = TrainingData(data, batch_size)
    size = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    products = 0

    with left_as_it_was(model) as restore:

        def times(vector: np.ndarray) -> Any:
            nonlocal products
            restore()  # the same dropout in each product
            column = product.over(data, vector) + weight_decay * vector
            products += 1
            bar.update(products)
            if not np.all(np.isfinite(column)):
                raise ValueError(
                    "`model` must have a finite Hessian. Check that training "
                    "did not diverge. Received: NaN or infinity in the "
                    "product with a vector of length 1"
                )
            return column

        def foremost(of: Any, negligible: Any) -> Any:
            values, vectors = eigenpairs(
                of,
                size=size,
                count=1,
                which="LM",
                tolerance=tolerance,
                max_restarts=max_restarts,
                seed=seed,
                negligible=negligible,
            )
            return values[0], vectors[0]

        first, vector = foremost(times, 0.0)
        beyond, other = foremost(
            lambda v: times(v) - first * v,  # (2)
            _ROUNDING * abs(first),
        )
        found = sorted(
            [(first, vector), (first + beyond, other)], key=lambda one: one[0]
        )
        residuals = [
            float(np.linalg.norm(times(v) - value * v)) for value, v in found
        ]
    bar.target = products
    bar.update(products, finalize=True)
    return HessianEigenvaluesReport(
        examples=data.examples,
        size=size,
        products=products,
        minimum=float(found[0][0]),
        maximum=float(found[1][0]),
        residuals=residuals,
        vectors=np.stack([v for _, v in found]),
        shapes=[tuple(v.shape) for v in model.trainable_variables],
    )
