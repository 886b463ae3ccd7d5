"""Laplace approximations of trained models.

This folder computes the Fisher information and chooses the prior precision.
The result is a `keras_bdl.posteriors.Laplace`, in the folder of posteriors.
"""

from keras_bdl._laplace._fit_laplace import fit_laplace

__all__ = ["fit_laplace"]
