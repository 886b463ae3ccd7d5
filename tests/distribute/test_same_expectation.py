"""Compares noisy steps on replicas with closed forms.

The model consists of many weights. All three examples have the input 1, and
each output is one weight, so with targets y the gradient is the mean of w - y.
Two examples go to the first replica, one to the second. If each replica draws
its own noise, the mean has the variance of a draw times

    (2/3)^2 + (1/3)^2 = 5/9

If both replicas share a draw, the factor is 1. If each example has its own
noise, the factor is 1/3.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from tests.helpers import assert_moment

MEAN, STDDEV = 0.5, 0.3
TARGETS = np.array([1.0, 2.0, 6.0], "float32")
PARTS = TARGETS[:2], TARGETS[2:]
SHARES = np.array([2, 1]) / 3
OF_REPLICAS, OF_EXAMPLES = np.sum(SHARES**2), 1 / 3
GRADIENT = MEAN - TARGETS.mean()


class Seen(keras.optimizers.SGD):
    """An optimizer that changes no weight and keeps the gradient."""

    def build(self, variables):
        super().build(variables)
        self.gradients = self.add_optimizer_variables(variables, "gradient")

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        self.assign(self.gradients[index], gradient)


class EachStep(keras.callbacks.Callback):
    """Reads variables after every step."""

    def __init__(self, read):
        super().__init__()
        self.read = read
        self.found = []

    def on_train_batch_end(self, batch, logs=None):
        self.found.append([v.numpy().ravel() for v in self.read(self.model)])


def loss(y_true, y_pred):
    return 0.5 * keras.ops.sum(keras.ops.square(y_pred - y_true), axis=-1)


def trained(
    strategy,
    optimizer,
    read,
    layer=lambda units: keras.layers.Dense(units, use_bias=False),
    objective=None,
    weights=20_000,
    steps=1,
):
    """Returns the values after each step, of shape `(steps, weights)`."""
    with strategy.scope():
        model = bdl.Sequential([keras.Input((1,)), layer(weights)])
        model.compile(
            optimizer(3 * steps), loss, objective=objective and objective()
        )
    mean, *rho = model.trainable_variables
    mean.assign(np.full(mean.shape, MEAN))
    for variable in rho:
        variable.assign(np.full(mean.shape, np.log(np.expm1(STDDEV))))
    x, y = np.ones((3, 1)), np.repeat(TARGETS[:, None], weights, axis=1)
    # The examples of a `repeat` would count once.
    rows = np.tile(x, (steps, 1)), np.tile(y, (steps, 1))
    data = tf.data.Dataset.from_tensor_slices(rows)
    data = data.batch(3, drop_remainder=True)
    seen = EachStep(read)
    model.fit(data, shuffle=False, verbose=0, callbacks=[seen])
    return [np.float64(v) for v in zip(*seen.found, strict=True)]


def assert_moments(values, mean, variance=None):
    """Compares mean and variance of independent rows."""
    deviations = values - mean
    check_mean(deviations, 0.0)
    if variance is not None:
        check_mean(np.square(deviations), variance)


def check_mean(values, expected):
    of_rows = values.reshape(len(values), -1).mean(axis=1)
    stderr = of_rows.std() / np.sqrt(len(of_rows))
    assert_moment(of_rows.mean(), expected, stderr)


def natural(cls, beta_2, **kwargs):
    """Returns an optimizer that changes no weight and draws with `STDDEV`."""
    return lambda size: cls(
        0.0,
        prior_precision=1.0,
        beta_1=0.0,
        beta_2=beta_2,
        initial_curvature=1 / (size * STDDEV**2) - 1 / size,
        **kwargs,
    )


def test_vogn_has_mean_and_variance_of_gradients_and_squares(mirrored):
    found = trained(
        mirrored,
        natural(bdl.VOGN, beta_2=0.0),
        lambda m: [m.optimizer._momenta[0], m.optimizer._curvatures[0]],
    )
    momenta, squares = (values.T for values in found)
    prior = MEAN / 3
    assert_moments(momenta, GRADIENT + prior, OF_REPLICAS * STDDEV**2)
    # The mean of (m + e)^2 for several m and one Gaussian e.
    slopes = np.array([np.mean(MEAN - part) for part in PARTS])
    variances = 4 * slopes**2 * STDDEV**2 + 2 * STDDEV**4
    assert_moments(
        squares,
        np.mean((MEAN - TARGETS) ** 2) + STDDEV**2,
        SHARES**2 @ variances,
    )


def test_ivon_has_mean_and_variance_of_gradients_and_curvature(mirrored):
    weight = 2.0**-10
    found = trained(
        mirrored,
        natural(bdl.IVON, beta_2=1 - weight),
        lambda m: [m.optimizer._momenta[0], m.optimizer._curvatures[0]],
    )
    gradients, curvatures = (values.T for values in found)
    assert_moments(gradients, GRADIENT, OF_REPLICAS * STDDEV**2)
    # A change d turns the precision s into s + d + d^2 / (2 s).
    precision = 1 / (3 * STDDEV**2)
    start = precision - 1 / 3
    root = np.sqrt(1 + 2 * (curvatures - start) / precision)
    estimates = start + precision * (root - 1) / weight
    slopes = np.array([np.mean(MEAN - part) for part in PARTS])
    # The Hessian, estimated by (m + sigma e) e / sigma.
    assert_moments(estimates, 1.0, SHARES**2 @ (slopes**2 / STDDEV**2 + 2))


def test_noisy_kfac_has_mean_and_variance_of_gradients(mirrored):
    steps = 200
    (momenta,) = trained(
        mirrored,
        natural(bdl.NoisyKFAC, beta_2=1 - 1e-12, update_every=1),
        lambda m: [m.optimizer._momenta[0]],
        weights=50,
        steps=steps,
    )
    prior = MEAN / (3 * steps)
    assert_moments(momenta, GRADIENT + prior, OF_REPLICAS * STDDEV**2)


def test_sampled_vi_has_mean_and_variance_of_gradients(mirrored):
    found = trained(
        mirrored,
        lambda size: Seen(),
        lambda m: m.optimizer.gradients,
        objective=lambda: bdl.objectives.SampledVI("diagonal", STDDEV),
    )
    assert len(found) == 2
    means, stddevs = (values.T for values in found)
    assert_moments(means, GRADIENT + MEAN / 3, OF_REPLICAS * STDDEV**2)
    # Derivatives by log s, of s^2 / 2 (the likelihood) and of the KL.
    assert_moments(stddevs, STDDEV * (STDDEV + (STDDEV - 1 / STDDEV) / 3))


@pytest.mark.parametrize(
    ("estimator", "share"),
    [("weight", OF_REPLICAS), ("flipout", OF_EXAMPLES), ("local", OF_EXAMPLES)],
)
def test_mean_field_has_mean_and_variance_of_gradients(
    estimator, share, mirrored
):
    found = trained(
        mirrored,
        lambda size: Seen(),
        lambda m: m.optimizer.gradients,
        lambda units: bdl.layers.MeanFieldDense(
            units, use_bias=False, estimator=estimator
        ),
    )
    means, rhos = (values.T for values in found)
    assert_moments(means, GRADIENT + MEAN / 3, share * STDDEV**2)
    assert_moments(rhos, of_rho(STDDEV + (STDDEV - 1 / STDDEV) / 3))


def of_rho(by_stddev):
    """Turns a derivative by softplus(rho) into one by rho."""
    return by_stddev * -np.expm1(-STDDEV)


def test_radial_has_mean_and_variance_of_gradients(mirrored):
    weights, steps = 4, 400
    means, rhos = trained(
        mirrored,
        lambda size: Seen(),
        lambda m: m.optimizer.gradients,
        lambda units: bdl.layers.RadialDense(
            units, use_bias=False, estimator="weight"
        ),
        weights=weights,
        steps=steps,
    )
    size = 3 * steps
    assert_moments(means, GRADIENT + MEAN / size, OF_REPLICAS * STDDEV**2)
    assert_moments(rhos, of_rho(STDDEV + (STDDEV - 1 / STDDEV) / size))
