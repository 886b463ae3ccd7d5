"""Fits a Laplace approximation to a trained model.

This folder computes the Fisher information and chooses the prior precision.
The result is a `keras_bdl.posteriors.Laplace`, in the folder of posteriors.
"""

from keras_bdl.laplace.fit_laplace import fit_laplace

__all__ = ["fit_laplace"]
