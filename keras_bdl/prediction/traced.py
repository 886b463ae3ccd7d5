"""Tracing a function of a model as the model itself would."""

import tensorflow as tf


def traced(model, function):
    """Returns `function` compiled the way the model's own functions are."""
    if model.run_eagerly:
        return function
    return tf.function(
        function,
        autograph=False,
        jit_compile=model.jit_compile,
        reduce_retracing=True,
    )
