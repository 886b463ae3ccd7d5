"""Tests each Keras loss, with each reduction, in each method."""

import functools

import keras
import numpy as np
import pytest
from scipy.stats import laplace
from scipy.stats import norm

import keras_bdl as bdl
from keras_bdl.likelihoods._loss_as_likelihood import implied_noise

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2)).astype("float32")
CLASSES = np.array([0, 1, 2, 0, 1, 2])
ONE_HOT = np.eye(3, dtype="float32")[CLASSES]
REAL = RNG.uniform(0.5, 2.0, size=(6, 3)).astype("float32")
SIGNS = np.sign(RNG.normal(size=(6, 3))).astype("float32")
WORDS = np.array([[1, 2], [2, 1], [1, 1], [2, 2], [1, 2], [2, 1]])
REFUSED_REDUCTIONS = ("sum", "none", None, "mean_with_sample_weight")

losses = keras.losses
# Arguments of each loss, its targets, and the activation of the network.
CASES = {
    losses.BinaryCrossentropy: ({"from_logits": True}, ONE_HOT, None),
    losses.BinaryFocalCrossentropy: ({"from_logits": True}, ONE_HOT, None),
    losses.CTC: ({}, WORDS, None),
    losses.CategoricalCrossentropy: ({"from_logits": True}, ONE_HOT, None),
    losses.CategoricalFocalCrossentropy: ({}, ONE_HOT, keras.ops.softmax),
    losses.CategoricalGeneralizedCrossEntropy: ({}, CLASSES, keras.ops.softmax),
    losses.CategoricalHinge: ({}, ONE_HOT, None),
    losses.Circle: ({}, CLASSES, keras.ops.normalize),
    losses.CosineSimilarity: ({}, REAL, None),
    losses.Dice: ({}, ONE_HOT, keras.ops.sigmoid),
    losses.Hinge: ({}, SIGNS, None),
    losses.Huber: ({}, REAL, None),
    losses.KLDivergence: ({}, ONE_HOT, keras.ops.softmax),
    losses.LogCosh: ({}, REAL, None),
    losses.MeanAbsoluteError: ({}, REAL, None),
    losses.MeanAbsolutePercentageError: ({}, REAL, None),
    losses.MeanSquaredError: ({}, REAL, None),
    losses.MeanSquaredLogarithmicError: ({}, REAL, keras.ops.softplus),
    losses.Poisson: ({}, REAL, keras.ops.softplus),
    losses.SparseCategoricalCrossentropy: (
        {"from_logits": True},
        CLASSES,
        None,
    ),
    losses.SquaredHinge: ({}, SIGNS, None),
    losses.Tversky: ({}, ONE_HOT, keras.ops.sigmoid),
    bdl.likelihoods.Gaussian: ({"noise_stddev": 0.5}, REAL, None),
}
# Keras averages over the labels of an example; the likelihood is the product.
OF_LABELS = (losses.BinaryCrossentropy, losses.Poisson)
# One value for the whole batch, with any reduction.
OF_THE_BATCH = (losses.Dice, losses.Tversky)
N = len(X)
VI = bdl.objectives


def sized(cls, *args):
    return functools.partial(cls, *args, dataset_size=N)


METHODS = {
    "ATMC": {"optimizer": sized(bdl.ATMC, 1e-3)},
    "SGNHT": {"optimizer": sized(bdl.SGNHT, 1e-3)},
    "SGHMC": {"optimizer": sized(bdl.SGHMC, 1e-3)},
    "SGLD": {"optimizer": sized(bdl.SGLD, 1e-3)},
    "VOGN": {"optimizer": sized(bdl.VOGN, 1e-3)},
    "OGN": {"optimizer": sized(bdl.OGN, 1e-3)},
    "IVON": {"optimizer": sized(bdl.IVON, 1e-3)},
    "KFAC": {"optimizer": sized(bdl.KFAC, 1e-3)},
    "NoisyKFAC": {"optimizer": sized(bdl.NoisyKFAC, 1e-3)},
    "TaylorVI": {"objective": sized(VI.TaylorVI, "scalar")},
    "SampledVI": {"objective": sized(VI.SampledVI, "scalar")},
    "MAP": {"objective": sized(VI.MAP)},
    "MeanField": {"layer": lambda: sized(bdl.layers.MeanFieldDense)},
    "Radial": {"layer": lambda: sized(bdl.layers.RadialDense)},
}


def head(cls, inputs, layer):
    units = 12 if cls is losses.CTC else 3
    outputs = layer(units, name=cls.__name__)(inputs)
    if cls is losses.CTC:
        outputs = keras.layers.Reshape((4, 3))(outputs)
    activation = CASES[cls][2]
    return outputs if activation is None else activation(outputs)


def heads(classes, layer=keras.layers.Dense):
    """Returns a model with an output for each class of losses."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((2,))
    return bdl.Model(
        inputs, {cls.__name__: head(cls, inputs, layer) for cls in classes}
    )


@functools.cache
def plain_heads(classes):
    """Returns `heads` without distributions, and their first weights."""
    model = heads(classes)
    return model, model.get_weights()


def network(classes, method, **compiled_losses):
    """Returns `heads` in their first state, compiled with a method."""
    keras.utils.set_random_seed(1)  # the seed of the noise, too
    made = {name: make() for name, make in METHODS[method].items()}
    if "layer" in made:
        model = heads(classes, made.pop("layer"))
    else:
        model, weights = plain_heads(tuple(classes))
        model.set_weights(weights)
    made.setdefault("optimizer", keras.optimizers.SGD(1e-3))
    model.compile(loss=compiled_losses, run_eagerly=True, **made)
    return model


def step(model, classes):
    """Returns the losses and the weights after a step, by name."""
    y = {cls.__name__: CASES[cls][1] for cls in classes}
    logs = model.train_on_batch(X, y, return_dict=True)
    return logs | {v.path: v.numpy() for v in model.weights}


def test_the_table_has_every_loss_of_keras():
    found = {
        value
        for value in vars(keras.losses).values()
        if isinstance(value, type) and issubclass(value, keras.losses.Loss)
    }
    assert found - {keras.losses.Loss} == set(CASES) - {
        bdl.likelihoods.Gaussian
    }


# The other samplers, and the optimizers without noise, add no code to this.
@pytest.mark.parametrize(
    "method",
    [
        *("ATMC", "VOGN", "IVON", "NoisyKFAC"),
        *("TaylorVI", "SampledVI", "MAP", "MeanField"),
    ],
)
def test_every_loss_is_the_mean_of_its_values(method):
    classes = [cls for cls in CASES if cls not in OF_THE_BATCH]

    def values_of(loss):
        def values(y_true, y_pred):
            mean = loss.call(y_true, y_pred)
            if not isinstance(loss, OF_LABELS):
                return mean
            # The gradient is that of the sum over the three labels.
            others = 2.0 * mean
            return mean + others - keras.ops.stop_gradient(others)

        values.is_likelihood = True
        return values

    arguments = {cls: CASES[cls][0] for cls in classes}
    means = {c.__name__: c(**a, reduction="mean") for c, a in arguments.items()}
    found = step(network(classes, method, **means), classes)
    # `compile` averages the values of a function.
    values = {name: values_of(loss) for name, loss in means.items()}
    expected = step(network(classes, method, **values), classes)
    assert found.keys() == expected.keys() and len(found) > 2 * len(classes)
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name], value, rtol=1e-4, atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize("method", METHODS)
def test_every_other_reduction_is_refused(method):
    cls = losses.MeanSquaredError
    model = network([cls], method, MeanSquaredError="mse")
    cases = CASES if method == "ATMC" else {cls: CASES[cls]}
    for cls, (arguments, _, _) in cases.items():
        for reduction in REFUSED_REDUCTIONS:
            loss = cls(**arguments, reduction=reduction)
            with pytest.raises(ValueError, match="must be the mean over the"):
                model.compile(model.optimizer, loss, objective=model.objective)


@pytest.mark.parametrize("method", METHODS)
def test_one_value_for_a_batch_is_refused(method):
    def mean(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred))

    def of_columns(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=0)

    cls = losses.MeanSquaredError
    every = (mean, of_columns, "dice", losses.Tversky())
    for loss in every if method == "ATMC" else [mean]:
        model = network([cls], method, MeanSquaredError=loss)
        with pytest.raises(ValueError, match="one value for each example"):
            step(model, [cls])


def test_a_mean_over_outputs_without_a_second_axis_names_the_axis():
    layers = [keras.layers.Dense(1), keras.layers.Reshape(())]
    model = bdl.Sequential([keras.Input((2,)), *layers])
    model.compile(bdl.SGLD(1e-3), "mse")
    with pytest.raises(ValueError, match="outputs a second axis of size 1"):
        model.fit(X, REAL[:, 0], verbose=0)


def squared_sum(y_true, y_pred):
    return keras.ops.sum(keras.ops.square(y_true - y_pred))


def plain_model(layer, optimizer, loss):
    model = keras.Sequential([keras.Input((2,)), layer])
    model.compile(optimizer, loss)
    return model


@pytest.mark.parametrize("loss", ["sum", "none", "function"])
@pytest.mark.parametrize("seen_by", ["layer", "collector", "diagnostics"])
def test_a_plain_keras_model_refuses_sums_if_a_method_checks_the_loss(
    seen_by, loss
):
    layer, optimizer = keras.layers.Dense(3), bdl.SGLD(1e-3, dataset_size=N)
    callbacks = []
    if seen_by == "layer":
        layer, optimizer = METHODS["Radial"]["layer"]()(3), "sgd"
    elif seen_by == "collector":
        callbacks = [bdl.callbacks.SampleCollector(1)]
    else:
        callbacks = [bdl.callbacks.ChainDiagnostics()]
    if loss == "function":
        loss, message = squared_sum, "one value for each example"
    else:
        loss = losses.MeanSquaredError(reduction=loss)
        message = "must be the mean over the batch"
    model = plain_model(layer, optimizer, loss)
    with pytest.raises(ValueError, match=message):
        model.fit(X, REAL, callbacks=callbacks, verbose=0)


def test_a_sampler_alone_refuses_a_loss_that_is_not_one_number():
    loss = losses.MeanSquaredError(reduction="none")
    model = plain_model(
        keras.layers.Dense(3), bdl.ATMC(1e-3, dataset_size=N), loss
    )
    with pytest.raises(ValueError, match=r"`ATMC` needs.*shape \(6,\)"):
        model.train_on_batch(X, REAL)


@pytest.mark.parametrize("loss", [squared_sum, losses.Huber(reduction="sum")])
def test_without_a_method_any_loss_trains_as_in_a_keras_model(loss):
    found = []
    for cls in (keras.Sequential, bdl.Sequential):
        keras.utils.set_random_seed(0)
        model = cls([keras.Input((2,)), keras.layers.Dense(3)])
        # A check of an earlier `compile` no longer counts.
        model.compile("sgd", "mse", **compiled_before(cls))
        model.compile(keras.optimizers.SGD(0.01), loss)
        model.fit(X, REAL, verbose=0)
        found.append(model.get_weights())
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def compiled_before(cls):
    if cls is keras.Sequential:
        return {}
    return {"objective": bdl.objectives.MAP(dataset_size=N)}


@pytest.mark.parametrize("columns", [1, 3])
def test_noise_implied_by_a_loss_has_the_scipy_density(columns):
    """`exp(-loss)` is the density, up to a constant."""
    y = RNG.uniform(0.5, 1.4, size=(5, columns))
    p = RNG.uniform(0.5, 1.4, size=(5, columns))
    output = keras.KerasTensor((None, columns))
    log_1p = np.log1p(y), np.log1p(p)
    for loss, log_density, name in (
        ("mse", norm(p, (columns / 2) ** 0.5).logpdf(y), "Gaussian"),
        (
            "msle",
            norm(log_1p[1], (columns / 2) ** 0.5).logpdf(log_1p[0]),
            "Gaussian",
        ),
        ("mae", laplace(p, columns).logpdf(y), "Laplace"),
        ("huber", norm(p, columns**0.5).logpdf(y), "Gaussian"),
    ):
        values = np.asarray(losses.get(loss)(y, p))
        differ = values + log_density.sum(-1)
        # Errors stay below the `delta` of Huber.
        np.testing.assert_allclose(differ, differ[0], rtol=1e-4, err_msg=loss)
        noise = implied_noise(loss, output)
        assert noise.startswith(f"implies {name}") or loss == "huber"
        stddev = {"mae": columns, "huber": columns**0.5}
        scale = stddev.get(loss, (columns / 2) ** 0.5)
        assert f" of {scale:.3g}" in noise


def test_every_loss_is_a_likelihood_or_gives_a_warning():
    likelihoods = {
        losses.BinaryCrossentropy,
        losses.CTC,
        losses.CategoricalCrossentropy,
        losses.KLDivergence,
        losses.Poisson,
        losses.SparseCategoricalCrossentropy,
        bdl.likelihoods.Gaussian,
    }
    output = keras.KerasTensor((None, 3))
    silent = {
        cls
        for cls, (arguments, _, _) in CASES.items()
        if implied_noise(cls(**arguments), output) is None
    }
    assert silent == likelihoods


@pytest.mark.parametrize("method", METHODS)
def test_squared_error_as_likelihood_warns_once(method):
    cls = losses.MeanSquaredError
    model = network([cls], method, MeanSquaredError="mse")
    with pytest.warns(UserWarning) as found:
        step(model, [cls])
        step(model, [cls])
    said = [str(one.message) for one in found]
    said = [text for text in said if "taken for a negative" in text]
    assert len(said) == 1
    assert "standard deviation of 1.22" in said[0]  # sqrt(3 / 2)
    assert "keras_bdl.likelihoods.Gaussian(noise_stddev=...)" in said[0]
    assert f"`{type(owner(model)).__name__}`" in said[0]


def owner(model):
    own = [model.objective, model.optimizer, model.layers[1]]
    return next(one for one in own if hasattr(one, "dataset_size"))


def test_laplace_accepts_only_means_of_likelihoods():
    likelihoods = {
        losses.BinaryCrossentropy,
        losses.CategoricalCrossentropy,
        losses.KLDivergence,
        losses.Poisson,
        losses.SparseCategoricalCrossentropy,
        bdl.likelihoods.Gaussian,
    }
    for cls, (arguments, y, _) in CASES.items():
        inputs = keras.Input((2,))
        model = keras.Model(inputs, head(cls, inputs, keras.layers.Dense))
        for reduction in (*REFUSED_REDUCTIONS, "mean"):
            loss = cls(**arguments, reduction=reduction)
            fit = functools.partial(
                bdl.fit_laplace,
                model,
                (X, y),
                prior_precision=1.0,
                loss=loss,
                verbose=0,
            )
            if cls in likelihoods and reduction == "mean":
                found = fit().get_state()["log_likelihood"]
                observations = 3 * N if cls in OF_LABELS else N
                expected = -observations * np.mean(loss.call(y, model(X)))
                np.testing.assert_allclose(found, expected, rtol=1e-5)
                continue
            message = "must be a negative log-likelihood|mean over the batch"
            with pytest.raises(ValueError, match=message):
                fit()


@pytest.mark.parametrize(
    "measure",
    [
        lambda model: bdl.curvature.second_moments(model, (X, REAL)),
        lambda model: bdl.diagnostics.gradient_noise(
            model, (X, REAL), batch_size=2, verbose=0
        ),
    ],
    ids=["curvature", "diagnostics"],
)
def test_diagnostics_refuse_sums_and_the_model_can_still_train(measure):
    model = plain_model(keras.layers.Dense(3), "sgd", squared_sum)
    model.train_on_batch(X, REAL)
    with pytest.raises(ValueError, match="one value for each example"):
        measure(model)
    assert np.isfinite(model.train_on_batch(X, REAL))
    model.compile("sgd", losses.MeanSquaredError(reduction="sum"))
    with pytest.raises(ValueError, match="must be the mean over the batch"):
        measure(model)
