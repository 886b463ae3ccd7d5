"""Fits the posterior `keras_bdl.posteriors.Laplace` to a trained model."""

from keras_bdl.laplace.fit_laplace import fit_laplace

__all__ = ["fit_laplace"]
