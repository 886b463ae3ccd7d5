"""Fits the posterior `keras_bdl.posteriors.Laplace` to a trained model.

It is the code behind `Laplace.fit`, which is what users call.
"""

from keras_bdl.laplace.fitting import fit

__all__ = ["fit"]
