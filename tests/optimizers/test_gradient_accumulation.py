"""Several batches for one step."""

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from tests.helpers import cross_entropy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype("float32")
Y = RNG.integers(0, 3, 12)

OPTIMIZERS = {
    "VOGN": bdl.VOGN,
    "OGN": bdl.OGN,
    "IVON": bdl.IVON,
    "NoisyKFAC": bdl.NoisyKFAC,
    "KFAC": bdl.KFAC,
    "ATMC": bdl.ATMC,
    "SGNHT": bdl.SGNHT,
    "SGLD": bdl.SGLD,
}


def compiled(name, weights=None, **options):
    model = bdl.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(5, "tanh"),
            keras.layers.Dense(3),
        ]
    )
    if weights is not None:
        model.set_weights(weights)
    optimizer = OPTIMIZERS[name](0.01, seed=0, **options)
    model.compile(optimizer, cross_entropy())
    return model


def fit(model, batch_size, epochs=2):
    model.fit(
        X, Y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0
    )
    return model


def differ(weights, others):
    return any(np.any(a != b) for a, b in zip(weights, others, strict=True))


def curvatures(model):
    """Returns what an optimizer has learned of the curvature, if anything."""
    names = ("curvature", "_inputs", "_outputs")
    variables = model.optimizer.variables
    return [np.array(v) for v in variables if v.name.endswith(names)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_four_batches_move_the_weights_like_one_batch_of_all(name):
    # After one step, nearly all eigenvalues of the Kronecker factors are equal.
    # The eigenvectors, and so the next sample, then depend on rounding.
    steps = 1 if name == "NoisyKFAC" else 2
    one = compiled(name)
    start = one.get_weights()
    fit(one, 12, steps)
    four = fit(compiled(name, start, gradient_accumulation_steps=4), 3, steps)
    assert int(four.optimizer.iterations) == steps
    assert differ(start, one.get_weights())
    for a, b in zip(four.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, 1e-6, 1e-6)
    for a, b in zip(curvatures(four), curvatures(one), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


def test_weights_stay_until_the_last_batch_of_a_step():
    model = compiled("VOGN", gradient_accumulation_steps=5)
    start = model.get_weights()
    fit(model, 3, epochs=1)
    for a, b in zip(start, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    fit(model, 3, epochs=1)
    assert differ(start, model.get_weights())


def test_batches_of_a_step_have_one_sample_or_one_each():
    def samples(share_sample):
        model = compiled(
            "IVON", gradient_accumulation_steps=2, share_sample=share_sample
        )
        model.optimizer.dataset_size.count(12)
        variables = model.optimizer.prepare(model, X)
        first = model.optimizer.draw(variables, 0, 0)[0]
        model.optimizer._accumulator.batches.assign(1)
        return np.array(first), np.array(
            model.optimizer.draw(variables, 0, 0)[0]
        )

    np.testing.assert_array_equal(*samples(True))
    first, second = samples(False)
    assert np.all(first != second)


@pytest.mark.parametrize("name", ["NoisyKFAC", "SGNHT"])
def test_a_model_saved_between_two_batches_of_a_step_goes_on(name, tmp_path):
    whole = compiled(name, gradient_accumulation_steps=3)
    start = whole.get_weights()
    fit(whole, 3, epochs=3)
    half = fit(compiled(name, start, gradient_accumulation_steps=3), 3, 1)
    half.save(tmp_path / "half.keras")
    resumed = keras.models.load_model(tmp_path / "half.keras")
    fit(resumed, 3, epochs=2)
    for a, b in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, 1e-6, 1e-7)


@pytest.mark.parametrize("name", ["VOGN", "ATMC"])
def test_steps_of_one_batch_are_no_accumulation(name):
    with pytest.raises(ValueError, match="`gradient_accumulation_steps` must"):
        compiled(name, gradient_accumulation_steps=1)


@pytest.mark.parametrize("name", ["VOGN", "SGNHT"])
def test_a_run_resumed_with_another_number_of_batches_is_refused(
    name, tmp_path
):
    def run(steps, epochs):
        model = compiled(name, gradient_accumulation_steps=steps)
        checkpoint = bdl.callbacks.Checkpoint(str(tmp_path))
        model.fit(
            X, Y, batch_size=3, epochs=epochs, verbose=0, callbacks=[checkpoint]
        )

    run(3, 1)
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        run(2, 2)


def test_collector_counts_steps_of_the_optimizer():
    model = compiled("SGNHT", gradient_accumulation_steps=4)
    few = bdl.callbacks.SampleCollector(4, unit="step")
    options = {"batch_size": 3, "verbose": 0}
    with pytest.raises(ValueError, match="would take nothing"):
        model.fit(X, Y, epochs=3, callbacks=[few], **options)
    model.fit(X, Y, epochs=4, callbacks=[few], **options)
    assert len(few.posterior) == 1
