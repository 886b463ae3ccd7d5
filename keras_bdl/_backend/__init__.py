"""The interface to what Keras does not offer in every backend.

A function is here if `keras.ops` lacks it: derivatives, loops, random bits,
compilation, devices. Each backend has a file with its implementation.
"""

from keras_bdl._backend.tensorflow import adopted
from keras_bdl._backend.tensorflow import after
from keras_bdl._backend.tensorflow import argmax
from keras_bdl._backend.tensorflow import call_shared
from keras_bdl._backend.tensorflow import compile_part
from keras_bdl._backend.tensorflow import compile_recomputed
from keras_bdl._backend.tensorflow import compiled
from keras_bdl._backend.tensorflow import first_tensor
from keras_bdl._backend.tensorflow import grad
from keras_bdl._backend.tensorflow import hvp
from keras_bdl._backend.tensorflow import in_several_workers
from keras_bdl._backend.tensorflow import is_tracing
from keras_bdl._backend.tensorflow import jvp
from keras_bdl._backend.tensorflow import keras_compiles_nothing
from keras_bdl._backend.tensorflow import max_pool_by_places
from keras_bdl._backend.tensorflow import num_replicas
from keras_bdl._backend.tensorflow import outside_of_trace
from keras_bdl._backend.tensorflow import pays_to_compile
from keras_bdl._backend.tensorflow import philox
from keras_bdl._backend.tensorflow import poisson
from keras_bdl._backend.tensorflow import replica_id
from keras_bdl._backend.tensorflow import split
from keras_bdl._backend.tensorflow import tensor
from keras_bdl._backend.tensorflow import value_and_grad
from keras_bdl._backend.tensorflow import vjp
from keras_bdl._backend.tensorflow import words

__all__ = [
    "adopted",
    "after",
    "argmax",
    "call_shared",
    "compile_part",
    "compile_recomputed",
    "in_several_workers",
    "after",
    "first_tensor",
    "grad",
    "is_tracing",
    "keras_compiles_nothing",
    "hvp",
    "after",
    "argmax",
    "compiled",
    "first_tensor",
    "grad",
    "hvp",
    "in_several_workers",
    "is_tracing",
    "jvp",
    "keras_compiles_nothing",
    "max_pool_by_places",
    "num_replicas",
    "outside_of_trace",
    "pays_to_compile",
    "philox",
    "poisson",
    "replica_id",
    "split",
    "tensor",
    "value_and_grad",
    "vjp",
    "words",
]
