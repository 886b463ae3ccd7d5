"""Second moments and Kronecker factors of per-example gradients.

Optimizers, objectives and Laplace use this folder during training or fitting.
`keras_bdl.diagnostics` computes properties of a trained model, such as the
eigenvalues of the Hessian.
"""

from keras_bdl.curvature import _rules  # noqa: F401 (registers them)
from keras_bdl.curvature._batch_curvature import kronecker_factors
from keras_bdl.curvature._batch_curvature import per_example_gradients
from keras_bdl.curvature._batch_curvature import second_moments

__all__ = ["kronecker_factors", "per_example_gradients", "second_moments"]
