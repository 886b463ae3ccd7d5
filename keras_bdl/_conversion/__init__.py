"""Conversion of an ordinary Keras model into a Bayesian model.

The results are `keras_bdl.Model`s, with layers of `keras_bdl.layers`.
"""

from keras_bdl._conversion._convert import convert

__all__ = ["convert"]
