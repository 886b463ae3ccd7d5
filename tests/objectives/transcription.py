"""The objectives in NumPy for softmax regression and linear regression."""

import keras
import numpy as np

import keras_bdl as bdl
from tests.optimizers.variational import START
from tests.optimizers.variational import X
from tests.optimizers.variational import Y
from tests.optimizers.variational import per_example_gradients

N = len(X)


def nll(kernel, bias, x=X, y=Y):
    logits = np.float64(x) @ kernel + bias
    logits = logits - logits.max(1, keepdims=True)
    return np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y])


def kl(means, stddevs, prior=1.0):
    """KL to N(0, prior^2), of means and standard deviations alike."""
    return sum(
        np.sum(np.log(prior / s) + (s**2 + m**2) / (2 * prior**2) - 0.5)
        for m, s in zip(means, stddevs, strict=True)
    )


def squares(weights, size, x=X, y=Y):
    """S g^2, averaged over groups of `size` examples."""
    return [
        np.mean(
            [
                len(g) * g.mean(0) ** 2
                for g in np.split(of_all, range(size, len(x), size))
            ],
            axis=0,
        )
        for of_all in per_example_gradients(*weights, x, y)
    ]


def taylor(weights, log_stddevs, size=N, tau=1.0, prior=1.0):
    """The whole loss, a function of float64 arrays."""
    stddevs = [np.exp(s) for s in log_stddevs]
    quadratic = sum(
        np.sum(s**2 * h)
        for s, h in zip(stddevs, squares(weights, size), strict=True)
    )
    complexity = tau / N * kl(weights, stddevs, prior)
    return nll(*weights) + quadratic / 2 + complexity


def numerical_gradient(function, arrays, step=1e-5):
    """Central differences by every entry of some arrays."""
    gradients = [np.zeros_like(a) for a in arrays]
    for array, gradient in zip(arrays, gradients, strict=True):
        for i in np.ndindex(array.shape):
            value = array[i]
            array[i] = value + step
            up = function()
            array[i] = value - step
            gradient[i] = (up - function()) / (2 * step)
            array[i] = value
    return gradients


def start():
    return [np.float64(w) for w in START]


def squared_error(y_true, y_pred):
    """The negative log-likelihood of unit noise, without its constant."""
    return 0.5 * keras.ops.sum(keras.ops.square(y_true - y_pred), axis=-1)


def linear_regression(weights, objective, **compile):
    """A compiled model without bias that does not move."""
    model = bdl.Sequential(
        [
            keras.Input((len(weights),)),
            keras.layers.Dense(1, use_bias=False),
        ]
    )
    model.set_weights([np.reshape(weights, (-1, 1))])
    model.compile(
        keras.optimizers.SGD(0.0),
        squared_error,
        objective=objective,
        **compile,
    )
    return model
