"""Conversion of an ordinary Keras model into a Bayesian model.

The results are models of `keras_bdl.models`, with layers of `keras_bdl.layers`.
"""

from keras_bdl.conversion._convert import convert

__all__ = ["convert"]
