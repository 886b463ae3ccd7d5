"""Curvature of a batch by a loop over its examples in float64."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from keras_bdl import curvature


class BruteForce:
    """Gradients of the loss of each example, one after the other.

    A copy of the model in float64 is differentiated.
    """

    def __init__(self, make, model, x, y, sample_weight=None, training=True):
        with float64():
            twin = make()
            twin.set_weights(model.get_weights())
            self.omega = np.ones(len(keras.tree.flatten(x)[0]))
            if sample_weight is not None:
                self.omega = sample_weight
            variables = [v.value for v in twin.trainable_variables]
            x, y = keras.tree.map_structure(tf.constant, (x, y))
            with tf.GradientTape(persistent=True) as tape:
                y_pred = twin(x, training=training)
                losses = []
                for i in range(len(self.omega)):
                    row = slice(i, i + 1)
                    one = keras.tree.map_structure(
                        lambda t, row=row: t[row], (y, y_pred)
                    )
                    losses.append(twin._compile_loss(*one))
                # In the mean, but no part of the loss of an example.
                penalty = tf.add_n([tf.zeros((), "float64"), *twin.losses])
            by_loss = [
                tape.gradient(l, variables, unconnected_gradients="zero")
                for l in [*losses, penalty]
            ]
            *rows, self.penalties = [
                [tf.convert_to_tensor(g).numpy() for g in gradients]
                for gradients in by_loss
            ]
            self.rows = [np.array(row) for row in zip(*rows, strict=True)]

    @property
    def gradients(self):
        return [
            np.tensordot(self.omega, row, 1) / len(row) + penalty
            for row, penalty in zip(self.rows, self.penalties, strict=True)
        ]

    @property
    def squares(self):
        return [
            np.tensordot(self.omega, row**2, 1) / len(row) for row in self.rows
        ]


@contextlib.contextmanager
def float64():
    """Lets layers and losses compute in double precision."""
    policy = keras.config.dtype_policy()
    try:
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
        yield
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy(policy)


def assert_close(names, moments, expected, tolerance=1e-5):
    """Errors in units of the largest square, and of its root for gradients.

    Some true gradients are zero, hence no less than 1e-3 of the largest
    square of all variables.
    """
    floor = 1e-3 * max(h.max() for h in expected[1])
    wrong = {}
    for name, g, h, g0, h0 in zip(names, *moments, *expected, strict=True):
        scale = max(h0.max(), floor)
        assert tuple(h.shape) == h0.shape, name
        errors = (
            np.max(np.abs(g - g0)) / np.sqrt(scale),
            np.max(np.abs(h - h0)) / scale,
        )
        if not max(errors) <= tolerance:
            wrong[name] = errors
    assert not wrong


def check(make, x, y, sample_weight=None, rows=True, **kwargs):
    """Second moments of a model, and its rows, are those of a loop."""
    model = make()
    true = BruteForce(make, model, x, y, sample_weight)
    names = [v.path for v in model.trainable_variables]
    moments = curvature.second_moments(model, (x, y, sample_weight), **kwargs)
    expected = true.gradients, true.squares
    assert_close(names, moments, expected)
    if not rows:
        return
    rows = curvature.per_example_gradients(model, (x, y), **kwargs)
    scale = max(np.max(np.abs(row)) for row in true.rows)
    for name, row, row0 in zip(names, rows, true.rows, strict=True):
        assert np.max(np.abs(row - row0)) <= 1e-5 * scale, name
