"""Posteriors of optimizers and objectives before the first step."""

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.objectives import TaylorVI
from tests.optimizers.variational import X
from tests.optimizers.variational import Y
from tests.optimizers.variational import softmax_regression

METHODS = {
    "vogn": bdl.VOGN,
    "ivon": bdl.IVON,
    "noisy_kfac": bdl.NoisyKFAC,
}


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


def trained(method):
    model = softmax_regression(method())
    model.fit(X, Y, epochs=2, verbose=0)
    return model


# Keras calls `__array__` of HDF5 data sets in the old way of NumPy.
@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_load_weights_of_a_compiled_model_loads_the_posterior(method, tmp_path):
    model = trained(method)
    model.save_weights(tmp_path / "x.weights.h5")
    other = softmax_regression(method())
    other.load_weights(tmp_path / "x.weights.h5")
    ours, theirs = (
        bdl.predict(m, X, samples=4, verbose=0) for m in (other, model)
    )
    np.testing.assert_array_equal(ours.mean, theirs.mean)
    assert ours.num_samples == 4


def test_posterior_after_a_second_compile_is_an_error(method):
    model = trained(method)
    # With N known, the initial curvature would do for a wrong answer.
    model.compile(method(dataset_size=12), model.loss)
    with pytest.raises(ValueError, match="has no posterior before its first"):
        bdl.predict(model, X, verbose=0)


def test_evaluation_before_the_first_step_reports_no_posterior(
    method,
):
    model = softmax_regression(method(), samples=2)
    # Not that N is missing.
    with pytest.raises(ValueError, match="has no posterior before its first"):
        model.evaluate(X, Y, verbose=0)
    model = softmax_regression(method(dataset_size=12), samples=2)
    with pytest.warns(UserWarning, match="has no posterior before its first"):
        model.predict(X, verbose=0)


def test_evaluation_after_the_first_step_is_silent(mirrored):
    with mirrored.scope():
        model = softmax_regression(bdl.VOGN(), samples=2)
    model.fit(X, Y, validation_data=(X, Y), verbose=0)  # warnings would raise
    assert keras.ops.convert_to_numpy(model.optimizer.iterations) == 1


def test_variances_after_a_second_compile_are_a_warning():
    model = softmax_regression("adam", objective=TaylorVI("scalar"))
    model.fit(X, Y, verbose=0)
    bdl.predict(model, X, verbose=0)  # a warning would raise
    model.compile("adam", model.loss, objective=TaylorVI("scalar"), samples=2)
    with pytest.warns(UserWarning, match="has learned no variances yet"):
        bdl.predict(model, X, verbose=0)
    with pytest.warns(UserWarning, match="has learned no variances yet"):
        model.predict(X, verbose=0)
