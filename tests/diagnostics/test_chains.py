import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.callbacks import SampleCollector
from keras_bdl.diagnostics import prediction_chains
from keras_bdl.extend import WeightChains
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from tests.helpers import cross_entropy
from tests.posteriors.networks import arrays_like
from tests.posteriors.networks import network

X = np.random.default_rng(0).normal(size=(9, 2)).astype("float32")


def make_chains(model, count=2, draws=5):
    """Returns ensembles of random weights and BatchNorm statistics."""
    names = [v.name for v in model.weights]
    chains = []
    for chain in range(count):
        members = [
            [np.abs(a) for a in arrays_like(model.weights, 10 * chain + draw)]
            for draw in range(draws)
        ]
        chains.append(Ensemble(members, names=names))
    return chains


def classifier():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    loss = cross_entropy()
    model.compile(bdl.SGLD(0.1, dataset_size=9), loss)
    return model


def test_weight_chains_hold_the_samples_of_each_variable():
    model = network()
    chains = make_chains(model)
    weights = WeightChains(chains)
    assert list(weights)[:2] == ["0/kernel", "1/bias"]
    assert len(weights) == len(model.weights)
    for i, name in enumerate(weights):
        expected = [[c.sample(s)[i] for s in range(5)] for c in chains]
        np.testing.assert_array_equal(weights[name], expected)
        last = weights.shapes[name][0] - 1
        np.testing.assert_array_equal(
            weights.entries(name, [last, 0])[..., 0],
            np.reshape(expected, (2, 5, -1))[..., last],
        )


def test_model_defines_paths_and_leaves_out_untrained_variables():
    model = network()
    chains = make_chains(model)
    weights = WeightChains(chains, model)
    assert list(weights) == [v.path for v in model.trainable_variables]
    gamma = model.layers[1].gamma
    np.testing.assert_array_equal(
        weights[gamma.path],
        [[c.sample(s)[2] for s in range(5)] for c in chains],
    )


def test_predictions_follow_the_order_of_the_samples():
    model = network()
    model.compile(loss="mse")
    chains = make_chains(model, draws=7)
    before = model.get_weights()
    outputs = prediction_chains(chains, model, X, verbose=0)
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert outputs.shape == (2, 7, 9, 1)
    for c, s in np.ndindex(2, 7):
        model.set_weights(chains[c].sample(s))
        expected = model(X, training=False)
        np.testing.assert_allclose(outputs[c, s], expected, rtol=1e-4)


def test_collectors_can_replace_ensembles(tmp_path):
    in_memory, on_disk = [], []
    for chain in range(2):
        model = classifier()
        in_memory.append(SampleCollector(1))
        on_disk.append(SampleCollector(1, directory=tmp_path / str(chain)))
        both = [in_memory[-1], on_disk[-1]]
        model.fit(X, np.arange(9) % 3, epochs=4, verbose=0, callbacks=both)
    kernel, _ = WeightChains(on_disk, model).values()
    assert kernel.shape == (2, 4, 2, 3)
    np.testing.assert_array_equal(
        kernel[1], [in_memory[1].posterior.sample(s)[0] for s in range(4)]
    )
    probabilities = prediction_chains(in_memory, model, X, verbose=0)
    logits = X @ kernel[1, 3] + in_memory[1].posterior.sample(3)[1]
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(probabilities[1, 3], expected, rtol=1e-4)
    np.testing.assert_array_equal(
        prediction_chains(on_disk, model, X, verbose=0), probabilities
    )


def test_several_outputs_keep_their_structure():
    inputs = keras.Input((2,))
    outputs = {
        "a": keras.layers.Dense(1)(inputs),
        "b": keras.layers.Dense(3)(inputs),
    }
    model = keras.Model(inputs, outputs)
    outputs = prediction_chains(
        make_chains(model),
        model,
        X,
        options=bdl.prediction.PredictOptions(task="regression"),
        verbose=0,
    )
    assert {k: v.shape for k, v in outputs.items()} == {
        "a": (2, 5, 9, 1),
        "b": (2, 5, 9, 3),
    }


def test_samples_takes_the_latest_samples_of_chains_of_unequal_length():
    model = network()
    model.compile(loss="mse")
    chains = make_chains(model)[:1] + make_chains(model, draws=7)[1:]
    with pytest.raises(ValueError, match=r"Give `samples=5`.*\[5, 7\] samples"):
        WeightChains(chains)
    for weights in (
        WeightChains(chains, samples=5),
        WeightChains(chains, samples=4),
    ):
        samples = weights.num_samples
        np.testing.assert_array_equal(
            weights["0/kernel"][:, 0],
            [
                chains[0].sample(5 - samples)[0],
                chains[1].sample(7 - samples)[0],
            ],
        )
    outputs = prediction_chains(chains, model, X, samples=4, verbose=0)
    model.set_weights(chains[1].sample(3))
    np.testing.assert_allclose(outputs[1, 0], model(X), rtol=1e-4)
    with pytest.raises(ValueError, match="`samples` must be at most.*5.*=6"):
        WeightChains(chains, samples=6)


def test_wrong_chains_are_refused():
    model, other = network(), network(units=4)
    chains, gaussian = make_chains(model), Gaussian([np.ones(2)])
    for wrong, match in (
        (chains[0], "`chains` must be a list"),
        ([], "at least one chain"),
        ([chains[0], gaussian], r"chains\[1\] of type Gaussian"),
        (chains + make_chains(other), r"one architecture.*chains\[2\]"),
    ):
        with pytest.raises(ValueError, match=match):
            WeightChains(wrong)
    with pytest.raises(ValueError, match="must belong to this architecture"):
        WeightChains(chains, other)
