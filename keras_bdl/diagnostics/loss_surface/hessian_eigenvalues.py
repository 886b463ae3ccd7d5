"""The ends of the spectrum of the Hessian of the training loss."""

import contextlib
import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf

from keras_bdl.arguments import check_number
from keras_bdl.arguments import check_verbose
from keras_bdl.data.checked_inputs import check_count
from keras_bdl.data.examples import TrainingData
from keras_bdl.diagnostics.loss_surface.eigenpairs import eigenpairs
from keras_bdl.diagnostics.loss_surface.weight_vectors import as_arrays
from keras_bdl.diagnostics.training_loss import TrainingLoss
from keras_bdl.diagnostics.training_loss import left_as_it_was
from keras_bdl.objectives.exact_moments import exact_moments
from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True, eq=False)
class HessianEigenvalues(Report):
    """Extreme eigenvalues. Made by `hessian_eigenvalues`.

    `to_dict` leaves the vectors out, which are as long as the network is
    large.

    Attributes:
        examples: How many examples there were.
        size: Number of weights.
        products: How many products with the Hessian it took.
        minimum: The least eigenvalue.
        maximum: The largest eigenvalue.
        residuals: `|H e - lambda e|` of both, which bounds how far each is
            from an eigenvalue.
        vectors: Array `(2, size)` of their unit eigenvectors.
        shapes: Of the trainable variables.
    """

    examples: int
    size: int
    products: int
    minimum: float
    maximum: float
    residuals: list
    vectors: np.ndarray = dataclasses.field(repr=False)
    shapes: list = dataclasses.field(repr=False)

    def directions(self) -> list:
        """Returns both eigenvectors as lists of arrays, the least first."""
        return [as_arrays(vector, self.shapes) for vector in self.vectors]

    def to_dict(self) -> dict:
        """Returns the numbers as a dict of plain Python types."""
        left_out = ("vectors", "shapes")
        names = [f.name for f in dataclasses.fields(self)]
        return {n: getattr(self, n) for n in names if n not in left_out}

    def title(self) -> str:
        """Returns the first line."""
        return (
            f"Hessian of the loss of {self.examples} examples, {self.size} "
            f"weights, {self.products} products"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
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
    """Multiplies a vector by the Hessian, batch by batch.

        H v = sum_b (n_b / N) d/dw (g_b' v)                               (1)

    with g_b the gradient of batch b and n_b its examples.
    """

    def over(self, data, vector):
        """Returns (1), a vector of float64.

        Args:
            data: `TrainingData`.
            vector: Of NumPy, with an entry for each trainable weight.
        """
        vector = tf.constant(vector, "float32")
        total = tf.zeros_like(vector)
        for batch in data:
            total = self(batch, vector, total)
        return total.numpy().astype("float64") / data.examples

    def _step(self, batch, vector, total):
        variables = [v.value for v in self.model.trainable_variables]
        sizes = [math.prod(v.shape) for v in variables]
        parts = tf.split(vector, sizes)
        # Without training, statistics are constants.
        moments = exact_moments if self._training else contextlib.nullcontext
        with moments(), tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                found = self.forward(batch)
                loss = found.loss + found.penalty
            gradients = inner.gradient(
                loss, variables, unconnected_gradients="zero"
            )
            product = tf.add_n(
                [
                    tf.reduce_sum(
                        tf.reshape(tf.cast(g, "float32"), [-1]) * part
                    )
                    for g, part in zip(gradients, parts, strict=True)
                ]
            )
        columns = outer.gradient(
            product, variables, unconnected_gradients="zero"
        )
        column = tf.concat(
            [tf.reshape(tf.cast(c, "float32"), [-1]) for c in columns], 0
        )
        return total + found.examples * column  # (1)


# Of products in float32.
_ROUNDING = 1e-5


def hessian_eigenvalues(
    model,
    data,
    loss=None,
    weight_decay: float = 0.0,
    training: bool = False,
    tolerance: float = 1e-3,
    max_restarts: int = 100,
    seed: int = 0,
    batch_size: int | None = None,
    verbose="auto",
) -> HessianEigenvalues:
    """Finds the least and the largest eigenvalue of the Hessian.

    With L the mean loss over all of the data, regularizers and a/2 |w|^2
    with a `weight_decay`,

        H = d^2 L / dw^2,    H e = lambda e                               (1)

    is never formed: products `H v` are added up batch by batch, by a function
    that is traced once. The Lanczos method finds lambda_1, of the largest
    magnitude, and then that of

        H - lambda_1 I                                                    (2)

    which is the other end of the spectrum less lambda_1. So both have an
    error relative to the width of the spectrum, where a least eigenvalue
    next to zero would have none that products in float32 could reach. A
    negative one shows that no Gaussian approximates the posterior there.

    Args:
        model: A built Keras model with ordinary weights, left as it was.
        data: The training data, as of `loss_cross_section`, read once for
            each product: leave out augmentation and shuffling.
        loss: The negative log-likelihood, as `compile` takes it. Defaults to
            `None`, the one that the model is compiled with.
        weight_decay: See above. Defaults to `0.0`.
        training: Whether BatchNorm takes the statistics of each batch, and
            dropout drops, the same in every product. Defaults to `False`,
            moving statistics, which are constants: the Hessian of another
            function, often with much larger eigenvalues.
        tolerance: Largest error of an eigenvector, `|H e - lambda e|`
            relative to the magnitude of the eigenvalue of (1) or (2) that is
            looked for. Errors of eigenvalues are of its square. Defaults to
            `1e-3`; below `1e-5` is hardly within reach of float32.
        max_restarts: Of the Lanczos method, each of about 20 products, before
            it gives up with a `RuntimeError`. Defaults to `100`.
        seed: Selects the first vector. Defaults to `0`.
        batch_size: For arrays. Defaults to `None`, 32.
        verbose: `0` for silence, `1` for a progress bar that counts products,
            `2` for one line. Defaults to `"auto"`, `1`.

    Returns:
        A `HessianEigenvalues`. Memory is that of 20 vectors of float64 as
        long as the network has weights.

    Example:

    ```python
    found = keras_bdl.diagnostics.hessian_eigenvalues(model, (x, y))
    found.minimum, found.maximum
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), section 4.2
    """
    product = HessianProduct.of(model, loss, bool(training))
    check_number("weight_decay", weight_decay, at_least=0.0)
    check_number("tolerance", tolerance, above=0.0, below=1.0)
    check_number("seed", seed, at_least=0, integer=True)
    check_count("max_restarts", max_restarts)
    bar = keras.utils.Progbar(
        None, verbose=check_verbose(verbose), unit_name="product"
    )
    data = TrainingData(data, batch_size)
    size = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    products = 0

    with left_as_it_was(model) as restore:

        def times(vector):
            nonlocal products
            restore()  # the same dropout every time
            column = product.over(data, vector) + weight_decay * vector
            products += 1
            bar.update(products)
            if not np.all(np.isfinite(column)):
                raise ValueError(
                    "`model` must have a finite Hessian. Received: NaN or "
                    "infinity in its product with a vector of length 1. Did "
                    "the training diverge?"
                )
            return column

        def foremost(of, negligible):
            values, vectors = eigenpairs(
                of,
                size,
                1,
                "LM",
                tolerance,
                max_restarts,
                seed,
                negligible,
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
    return HessianEigenvalues(
        examples=data.examples,
        size=size,
        products=products,
        minimum=float(found[0][0]),
        maximum=float(found[1][0]),
        residuals=residuals,
        vectors=np.stack([v for _, v in found]),
        shapes=[tuple(v.shape) for v in model.trainable_variables],
    )
