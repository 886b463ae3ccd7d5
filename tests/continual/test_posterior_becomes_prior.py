import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl import layers
from keras_bdl.continual import posterior_becomes_prior
from keras_bdl.continual._posterior_becomes_prior import restart_optimizer
from keras_bdl.distributions import MeanField

KINDS = ["MeanFieldDense", "RadialDense"]
X = np.random.default_rng(1).normal(size=(12, 3)).astype("float32")
Y = X[:, :2]


class Counting(bdl.Sequential):
    """Counts the traces of its training step."""

    traces = 0

    def train_step(self, data):
        self.traces += 1
        return super().train_step(data)


def make(kind, **kwargs):
    layer = getattr(layers, kind)(2, **kwargs)
    model = Counting([keras.Input((3,)), layer])
    model.compile(keras.optimizers.Adam(0.05), "mse")
    return model, layer


def numbers(distribution):
    """Returns the mean and the standard deviation of each weight."""
    return np.asarray(distribution.mean), np.sqrt(distribution.variance)


def stored(layer):
    return [
        (np.asarray(v[0]), np.asarray(v[1]))
        for v in (p.stored for p in layer.weight_posteriors)
    ]


def assert_prior_is(layer, expected):
    for prior, q in zip(stored(layer), expected, strict=True):
        np.testing.assert_allclose(prior, q, rtol=1e-6)


def posteriors(layer):
    return [numbers(q) for q in layer.posteriors.values()]


@pytest.mark.parametrize(
    ("kind", "density"),
    [
        ("MeanFieldDense", "gaussian"),
        ("RadialDense", "gaussian"),
        ("RadialDense", "exact"),
    ],
)
def test_first_step_is_finite_where_posterior_and_prior_coincide(kind, density):
    model, layer = make(kind, dataset_size=12)
    edge = (kind, density) == ("RadialDense", "exact")
    compiled = edge or kind == "MeanFieldDense"
    model.compile("adam", "mse", jit_compile=compiled)
    model.fit(X, Y, epochs=2, verbose=0)
    posterior_becomes_prior(model, density=density)
    if kind == "MeanFieldDense" or edge:
        assert abs(float(layer.kl_divergence())) < 1e-5
    with tf.GradientTape() as tape:
        layer(X, training=True)
        (kl,) = layer.losses
    gradients = tape.gradient(kl, model.trainable_variables)
    assert np.isfinite(kl) and all(np.isfinite(g).all() for g in gradients)
    if not edge:
        # The KL has its minimum here.
        assert max(np.abs(g).max() for g in gradients) < 1e-6
    logs = model.fit(X, Y, batch_size=4, epochs=1, verbose=0).history
    assert np.isfinite(logs["loss"]).all()
    assert all(np.isfinite(w).all() for w in model.get_weights())


@pytest.mark.parametrize("kind", KINDS)
def test_training_continues_with_a_new_prior_and_one_trace(kind):
    model, layer = make(kind)
    model.fit(X, Y, verbose=0)
    traces = []
    for size in (10, 7, 12):
        posterior_becomes_prior(model)
        assert_prior_is(layer, posteriors(layer))
        assert model.optimizer.iterations == 0
        before, traces = model.traces, [*traces, model.traces]
        logs = model.fit(X[:size], Y[:size], epochs=3, verbose=0).history
        assert before <= model.traces <= before + 1
        # Of the new prior, and of the number of examples that there are now.
        total = model.evaluate(X, Y, verbose=0, return_dict=True)["kl"]
        kl = float(layer.kl_divergence()) / size
        assert kl > 0 and total == pytest.approx(kl, rel=1e-5)
        np.testing.assert_allclose(
            logs["loss"], np.add(logs["nll"], logs["kl"]), rtol=1e-5
        )
    assert traces[1] == traces[0] + 1  # a prior of another kind
    assert model.traces == traces[1]  # only other values


def test_chain_of_tasks_finds_the_posterior_of_all_data():
    # In an orthogonal design the posterior is one of independent weights, so
    # that (1) of the docstring holds exactly.
    rng = np.random.default_rng(0)
    layer = layers.MeanFieldDense(
        1,
        use_bias=False,
        estimator="local",
        prior=bdl.priors.Normal(0.7),
        rho_initializer=keras.initializers.Constant(-2.0),
        dataset_size=30,
    )
    model = keras.Sequential([keras.Input((3,)), layer])
    steps = 4000
    rate = keras.optimizers.schedules.CosineDecay(0.03, steps)
    model.compile(
        keras.optimizers.Adam(rate),
        bdl.likelihoods.Gaussian(1.0),
        steps_per_execution=100,
    )
    precision, score = np.full(3, 1 / 0.7**2), np.zeros(3)
    for scales in ([2.0, 5.0, 4.0], [6.0, 2.0, 3.0], [3.0, 3.0, 8.0]):
        x = np.linalg.qr(rng.normal(size=(30, 3)))[0] * scales
        # Closer to a line than the likelihood says: residuals are the noise
        # of the gradients.
        y = x @ [[1.0], [-2.0], [0.5]] + 0.1 * rng.normal(size=(30, 1))
        data = tf.data.Dataset.from_tensors((x.astype("f"), y.astype("f")))
        model.fit(data.repeat(steps), verbose=0, shuffle=False)
        posterior_becomes_prior(model)
        precision += np.sum(x**2, 0)
        score += (x.T @ y)[:, 0]
    mean, stddev = numbers(layer.posteriors["kernel"])
    expected = 1 / np.sqrt(precision)
    np.testing.assert_allclose(stddev[:, 0], expected, rtol=0.05)
    difference = (mean[:, 0] - score / precision) / expected
    # More than five standard deviations, by the spread over six seeds.
    assert np.abs(difference).max() < 0.1


def test_radial_prior_has_an_edge_at_its_mean():
    layer = layers.RadialDense(40, use_bias=False)
    layer.build((None, 50))
    layer.posterior_becomes_prior(density="exact")
    q = layer.posteriors["kernel"]
    direction = np.random.default_rng(0).normal(size=(50, 40))
    for distance in (0.01, 0.02):
        shift = direction * q.stddev * distance / np.linalg.norm(direction)
        layer.kernel_mean.assign(q.mean + shift)
        # E log(1 + distance^2 / r^2) / 2 for each of D - 1 dimensions.
        expected = 1999 * np.sqrt(np.pi / 2) * distance
        assert float(layer.kl_divergence()) == pytest.approx(expected, rel=0.03)


def radial_kl(mean, scale, m, s):
    """KL of a Radial tensor from Gaussians N(m, s^2), in NumPy."""
    size = mean.size
    log_area = math.log(2) + size / 2 * math.log(math.pi)
    log_area -= math.lgamma(size / 2)
    entropy = math.log(2) - math.log(2 * math.pi) / 2 - 0.5 - log_area
    entropy += (size - 1) * (np.euler_gamma + math.log(2)) / 2
    squares = ((mean - m) ** 2 + scale**2 / size) / (2 * s**2)
    terms = -np.log(scale) + np.log(2 * math.pi * s**2) / 2 + squares
    return entropy + terms.sum()


def test_gaussian_prior_of_a_radial_layer_has_the_kl_of_the_closed_form():
    rng = np.random.default_rng(0)
    layer = layers.RadialDense(5, use_bias=False)
    layer.build((None, 8))
    mean, rho = rng.normal(size=(2, 8, 5))
    layer.set_weights([mean, rho, *layer.get_weights()[2:]])
    layer.posterior_becomes_prior()
    scale = np.sqrt(40) * np.log1p(np.exp(rho))
    prior = mean, scale / np.sqrt(40)
    start = float(layer.kl_divergence())
    assert start == pytest.approx(radial_kl(mean, scale, *prior), rel=1e-5)
    shift = 0.3 * rng.normal(size=mean.shape)
    layer.kernel_mean.assign(mean + shift)
    # (2) of the docstring.
    added = 40 / 2 * np.sum((shift / scale) ** 2)
    found = float(layer.kl_divergence())
    assert found == pytest.approx(start + added, rel=1e-5)
    layer.kernel_rho.assign(rho + shift)
    scales = np.sqrt(40) * np.log1p(np.exp(rho + shift))
    expected = radial_kl(mean + shift, scales, *prior)
    assert float(layer.kl_divergence()) == pytest.approx(expected, rel=1e-5)


def test_gaussian_prior_is_the_gaussian_closest_to_the_radial_posterior():
    layer = layers.RadialDense(6)
    layer.build((None, 5))
    layer.posterior_becomes_prior()
    closest = float(layer.kl_divergence())
    best = {n: MeanField(*numbers(q)) for n, q in layer.posteriors.items()}
    for factor, shift in ((0.9, 0.0), (1.1, 0.0), (1.0, -0.1), (1.0, 0.1)):
        layer.set_prior(
            **{
                n: MeanField(p.mean + shift * p.stddev, factor * p.stddev)
                for n, p in best.items()
            }
        )
        assert float(layer.kl_divergence()) > closest + 0.01


def test_heads_of_other_tasks_do_not_change():
    inputs = keras.Input((3,))
    body = layers.RadialDense(4, activation="relu")
    heads = [layers.MeanFieldDense(2) for _ in range(3)]
    models = [bdl.Model(inputs, head(body(inputs))) for head in heads]
    for model in models:
        model.compile("adam", "mse")
        model.fit(X, Y, verbose=0)
        # All have traced their steps with the prior of the beginning.
        model.evaluate(X, Y, verbose=0)
    first = posteriors(body)
    posterior_becomes_prior(models[0])
    assert_prior_is(heads[0], posteriors(heads[0]))
    assert not any(p.stored for h in heads[1:] for p in h.weight_posteriors)
    models[1].compile("adam", "mse")
    models[1].fit(X, Y, epochs=2, verbose=0)
    assert_prior_is(body, first)
    kept = stored(heads[0])
    posterior_becomes_prior(models[1])
    assert_prior_is(body, posteriors(body))
    assert_prior_is(heads[0], kept)
    # The one that nobody compiled again knows the prior all the same.
    models[2].optimizer.learning_rate = 0.0
    logs = models[2].fit(X, Y, verbose=0, validation_data=(X, Y)).history
    kl = sum(float(part.kl_divergence()) for part in (body, heads[2])) / 12
    assert logs["kl"][0] == pytest.approx(kl, rel=1e-5)
    assert logs["val_kl"][0] == pytest.approx(kl, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_next_task_may_begin_in_another_process(kind, tmp_path):
    model, layer = make(kind, seed=3)
    for _ in range(2):
        model.fit(X, Y, epochs=2, verbose=0)
        posterior_becomes_prior(model)
    prior = stored(layer)
    assert layer.prior.family == "mean_field"
    model.fit(X, -Y, epochs=2, verbose=0)
    model.save(tmp_path / "task.keras")
    with keras.saving.custom_object_scope({"Counting": Counting}):
        loaded = keras.models.load_model(tmp_path / "task.keras")
    assert_prior_is(loaded.layers[0], prior)
    assert loaded.layers[0].prior.family == "mean_field"
    np.testing.assert_allclose(
        loaded.layers[0].kl_divergence(), layer.kl_divergence(), rtol=1e-6
    )
    for one in (model, loaded):
        one.layers[0].seed_generator.state.assign([7, 0])
        posterior_becomes_prior(one)
        one.fit(X, -Y, epochs=2, verbose=0, shuffle=False)
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_replicas_have_the_same_prior(mirrored):
    with mirrored.scope():
        model, layer = make("RadialDense")
    model.fit(X, Y, verbose=0)
    posterior_becomes_prior(model)
    expected = posteriors(layer)
    logs = model.fit(X, Y, epochs=3, verbose=0).history
    assert logs["loss"][-1] == pytest.approx(logs["nll"][-1] + logs["kl"][-1])
    assert_prior_is(layer, expected)
    for p in layer.weight_posteriors:
        for variable in (*p.stored, p.mean, p.rho):
            a, b = variable.value.values
            np.testing.assert_array_equal(a, b)


def test_transform_makes_the_prior_of_selected_layers():
    model, layer = make("RadialDense")
    other = layers.MeanFieldDense(2, name="other")
    model.add(other)
    posterior_becomes_prior(
        model, ["other"], transform=lambda q: type(q)(q.mean, 3.0 * q.stddev)
    )
    assert_prior_is(other, [(m, 3 * s) for m, s in posteriors(other)])
    assert not any(p.stored for p in layer.weight_posteriors)
    posterior_becomes_prior(model, layers=[layer])
    assert_prior_is(layer, posteriors(layer))


def test_transform_gets_the_distribution_that_density_selects():
    model, layer = make("RadialDense")
    (kernel, bias) = layer.posteriors.values()
    doubled = [(q.mean, 2 * q.stddev) for q in (kernel, bias)]
    families = []
    for density in ("gaussian", "exact"):
        posterior_becomes_prior(
            model,
            density=density,
            transform=lambda p: type(p)(p.mean, 2 * p.stddev),
        )
        families.append(layer.prior.family)
        sizes = (6, 2) if density == "gaussian" else (1, 1)
        expected = zip(doubled, sizes, strict=True)
        assert_prior_is(layer, [(m, s / np.sqrt(d)) for (m, s), d in expected])
    assert families == ["mean_field", "radial"]


def test_new_density_is_traced_again_and_saved(tmp_path):
    model, layer = make("RadialDense")
    model.fit(X, Y, verbose=0)
    traces = []
    for density in ("gaussian", "exact", "exact", "gaussian"):
        posterior_becomes_prior(model, density=density)
        logs = model.fit(X, Y, epochs=1, verbose=0).history
        assert np.isfinite(logs["loss"]).all()
        traces.append(model.traces)
        kl = float(layer.kl_divergence()) / 12
        total = model.evaluate(X, Y, verbose=0, return_dict=True)["kl"]
        # The exact density is estimated by one draw.
        tolerance = 1e-5 if density == "gaussian" else 1.0
        assert total == pytest.approx(kl, rel=tolerance)
        family = {"gaussian": "mean_field", "exact": "radial"}[density]
        copy = layers.RadialDense.from_config(layer.get_config())
        assert copy.prior.family == layer.prior.family == family
    assert list(np.diff(traces)) == [1, 0, 1]


def test_reset_optimizer_false_keeps_the_optimizer():
    model, _ = make("MeanFieldDense")
    model.fit(X, Y, verbose=0)
    before = [np.asarray(v) for v in model.optimizer.variables]
    posterior_becomes_prior(model, reset_optimizer=False)
    for a, b in zip(before, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a, b)


def test_wrong_arguments_raise_before_any_change():
    model, layer = make("MeanFieldDense")
    with pytest.raises(ValueError, match="`transform` must be a function"):
        posterior_becomes_prior(model, transform=2.0)
    with pytest.raises(ValueError, match="`density` must be one of.*'exact'"):
        posterior_becomes_prior(model, density="radial")
    with pytest.raises(ValueError, match="`density` must be one of.*'exact'"):
        layer.posterior_becomes_prior(density=None)
    with pytest.raises(ValueError, match="`layers` must be variational"):
        posterior_becomes_prior(model, layers=[layer.name, "absent"])
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="must have variational layers"):
        posterior_becomes_prior(plain)
    unbuilt = bdl.Sequential([layer, layers.RadialDense(2)])
    with pytest.raises(ValueError, match="when it is built"):
        posterior_becomes_prior(unbuilt)
    assert not any(p.stored for p in layer.weight_posteriors)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(0.1, 5), amsgrad=True
        ),
        lambda: keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.3),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True),
    ],
)
def test_restarted_optimizer_steps_like_a_new_one(make):
    used, new = make(), make()
    w = keras.Variable([1.0, -2.0])
    used.build([w])
    for _ in range(4):
        used.apply([keras.ops.ones(2)])
    restart_optimizer(used)
    start = [3.0, 4.0]
    ways = []
    w.assign(start)
    other = keras.Variable(start)
    new.build([other])
    for optimizer, variable in ((used, w), (new, other)):
        for gradient in ([1.0, -0.5], [0.3, 2.0]):
            optimizer.apply([keras.ops.convert_to_tensor(gradient)])
        ways.append([np.asarray(v) for v in (variable, *optimizer.variables)])
    for a, b in zip(*ways, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_changed_learning_rate_stays():
    optimizer = keras.optimizers.Adam(0.1)
    restart_optimizer(optimizer)  # not built: nothing to forget
    optimizer.build([keras.Variable([1.0])])
    optimizer.learning_rate = 0.02
    optimizer.apply([keras.ops.ones(1)])
    restart_optimizer(optimizer)
    assert float(optimizer.learning_rate) == pytest.approx(0.02)
    assert optimizer.iterations == 0
