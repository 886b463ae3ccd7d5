import keras
import numpy as np
import pytest

from keras_bdl._saving._state_file import LazyArray
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import load
from tests.helpers import assert_equal
from tests.posteriors.networks import network
from tests.posteriors.networks import values


def members(count=3):
    models = [network() for _ in range(count)]
    for i, model in enumerate(models):
        model.layers[1].moving_mean.assign(np.full(3, float(i)))
    return models


def test_a_draw_is_a_whole_member_with_its_statistics():
    models = members()
    posterior = Ensemble.from_models(models)
    host = network()
    before = values(host.variables)
    for seed in range(4):
        with posterior.sampled(host, seed):
            assert_equal(host.get_weights(), models[seed % 3].get_weights())
    assert_equal(values(host.variables), before)


def test_seeds_take_the_members_in_turn():
    posterior = Ensemble.from_models(members())
    for seed in range(5):
        chosen = [s % 3 for s in posterior.seeds(seed, 6)]
        assert sorted(chosen) == [0, 0, 1, 1, 2, 2]


def test_mean_is_the_average_of_the_members():
    posterior = Ensemble([[np.float32([1, 2])], [np.float32([2, 6])]])
    np.testing.assert_array_equal(posterior.mean()[0], [1.5, 4.0])
    assert posterior.mean()[0].dtype == "float32"


def test_a_streamed_ensemble_reads_a_member_when_it_is_drawn(storage):
    posterior = Ensemble.from_models(members())
    posterior.save(storage / "a")
    streamed = load(storage / "a", stream=True)
    held = [a for m in streamed.get_state()["members"] for a in m]
    assert all(isinstance(a, LazyArray) for a in held)
    assert_equal(streamed.sample(1), posterior.sample(1))
    assert_equal(streamed.mean(), posterior.mean())
    streamed.save(storage / "a")  # over the file it streams from
    assert_equal(streamed.sample(2), posterior.sample(2))
    assert_equal(load(storage / "a").sample(2), posterior.sample(2))


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ([], "at least one network"),
        (np.ones((2, 3)), "`members` must be a list.*type ndarray"),
        ([np.ones(2)], r"`members\[0\]` must be a list of arrays"),
        ([[np.ones(2)], [np.ones(3)]], r"members\[1\] with array 0 of shape"),
        ([[np.ones(2)], []], r"members\[1\] with 0 arrays, expected 1"),
        (
            [[np.ones(2)], [np.full(2, np.nan)]],
            r"infinity in members\[1\]\[0\]",
        ),
    ],
)
def test_wrong_members_are_refused(weights, match):
    with pytest.raises(ValueError, match=match):
        Ensemble(weights)


def test_models_of_two_architectures_are_refused():
    with pytest.raises(ValueError, match=r"Variable 0.*\(2, 3\).*\(2, 4\)"):
        Ensemble.from_models([network(), network(units=4)])


def test_ensemble_needs_a_list_of_built_models():
    model = network()
    with pytest.raises(ValueError, match="`models` must be a list.*Sequential"):
        Ensemble.from_models(model)
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="must be built"):
        Ensemble.from_models([unbuilt, model])
    with pytest.raises(ValueError, match="Use `Ensemble.from_models"):
        Ensemble([model, model])
