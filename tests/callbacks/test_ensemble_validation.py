import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

import keras_bdl as bdl
from keras_bdl.callbacks import EnsembleValidation
from keras_bdl.callbacks import SampleCollector
from tests.callbacks.paths import Record
from tests.callbacks.test_sample_collector import CYCLE
from tests.callbacks.test_sample_collector import X
from tests.callbacks.test_sample_collector import Y
from tests.callbacks.test_sample_collector import fit
from tests.callbacks.test_sample_collector import make


@pytest.mark.parametrize("max_samples", [None, 2])
def test_logs_are_the_scores_of_the_ensemble_so_far(max_samples):
    record = Record()
    collector = SampleCollector(
        CYCLE,
        start_epoch=1,
        max_samples=max_samples,
    )
    validation = EnsembleValidation(collector, (X, Y), batch_size=7)
    model = fit(make(), record, collector, validation)
    logs = model.history.history
    most = max_samples or 4
    assert logs["posterior_samples"] == [0, 1, min(3, most), min(4, most)]
    assert np.isnan(logs["posterior_nll"][0])
    assert np.isnan(logs["posterior_accuracy"][0])
    taken = [12, 18, 24, 30]  # 8 steps make an epoch
    for epoch in (1, 2, 3):
        known = [s for s in taken if s <= 8 * (epoch + 1)]
        known = known[-max_samples:] if max_samples else known
        logits = [
            X @ kernel + bias for kernel, bias in map(record.steps.get, known)
        ]
        p = np.mean([softmax(z, -1) for z in logits], 0)
        nll = -np.mean(np.log(p[np.arange(32), Y]))
        np.testing.assert_allclose(logs["posterior_nll"][epoch], nll, rtol=1e-5)
        assert logs["posterior_accuracy"][epoch] == np.mean(p.argmax(-1) == Y)


def test_regression_is_evaluated_too():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(bdl.SGLD(0.1, dataset_size=32), "mse")
    record = Record()
    targets = X[:, :1]
    collector = SampleCollector(every=1)
    validation = EnsembleValidation(collector, (X, targets))
    callbacks = [record, collector, validation]
    logs = model.fit(
        X, targets, epochs=2, verbose=0, callbacks=callbacks
    ).history
    mean = np.mean([X @ kernel + bias for kernel, bias in record.epochs], 0)
    rmse = np.sqrt(np.mean((mean - targets) ** 2))
    np.testing.assert_allclose(logs["posterior_rmse"][1], rmse, rtol=1e-5)
    assert "posterior_nll" not in logs  # nobody knows the noise


def test_validation_data_in_another_order_raise_an_error():
    data = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(32).batch(8)
    with pytest.raises(ValueError, match="same examples in the same order"):
        collector = SampleCollector(every=1)
        fit(make(), collector, EnsembleValidation(collector, data))
    with pytest.raises(ValueError, match="a tuple of 3 elements"):
        EnsembleValidation(SampleCollector(every=1), (X, Y, Y))


def test_validation_must_come_after_its_collector():
    collector = SampleCollector(every=1)
    with pytest.raises(ValueError, match="must come after its collector"):
        fit(make(), EnsembleValidation(collector, (X, Y)), collector)
