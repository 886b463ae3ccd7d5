"""Fits the posterior `keras_bdl.posteriors.Laplace` to a trained model.

The posterior itself, a matrix normal with a prior precision, is in
`keras_bdl.posteriors`.
"""

from keras_bdl.laplace.fit_laplace import fit_laplace

__all__ = ["fit_laplace"]
