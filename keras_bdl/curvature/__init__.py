"""Second moments and Kronecker factors of per-example gradients.

Optimizers, objectives and Laplace use this folder during training or fitting.
`keras_bdl.diagnostics` measures a trained model, such as its Hessian
eigenvalues.
"""

import keras_bdl.curvature.rules  # noqa: F401 (registers them)
from keras_bdl.curvature.kronecker_factors import kronecker_factors
from keras_bdl.curvature.layer_factors import KroneckerFactors
from keras_bdl.curvature.per_example_gradients import per_example_gradients
from keras_bdl.curvature.rule import Rule
from keras_bdl.curvature.rule import register_rule
from keras_bdl.curvature.second_moments import second_moments
from keras_bdl.curvature.step import Step
from keras_bdl.curvature.step import step

__all__ = [
    "KroneckerFactors",
    "Rule",
    "Step",
    "kronecker_factors",
    "per_example_gradients",
    "register_rule",
    "second_moments",
    "step",
]
