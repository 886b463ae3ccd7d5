"""Turns an ordinary Keras model into a Bayesian one.

The models that come out are in `keras_bdl.models`, the layers put in are in
`keras_bdl.layers`.
"""

from keras_bdl.conversion.convert import convert

__all__ = ["convert"]
