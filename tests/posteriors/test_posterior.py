import keras
import numpy as np
import pytest

import keras_bdl
from keras_bdl._saving._state_file import write_state
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import LowRankGaussian
from keras_bdl.posteriors import MCDropout
from keras_bdl.posteriors import Mixture
from keras_bdl.posteriors import load
from tests.helpers import assert_equal
from tests.posteriors.networks import gaussian
from tests.posteriors.networks import low_rank
from tests.posteriors.networks import network
from tests.posteriors.networks import values


def test_layer_names_of_another_build_do_not_matter():
    posterior = gaussian(network())
    other = network()
    assert other.layers[0].name != "dense"
    posterior.check(other)


def dense_with_scale():
    layers = [keras.layers.Dense(3), keras.layers.LayerNormalization()]
    return keras.Sequential([keras.Input((2,)), *layers])


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (
            lambda: keras.Sequential([network(), keras.layers.Dense(1)]),
            r"covers 6 variables\. Received: a model with 8 of them; "
            r"`.*/kernel` is not in the posterior",
        ),
        (
            dense_with_scale,
            r"with 4 of them; variable 4 of the posterior, 'kernel' of shape "
            r"\(3, 1\), is not in the model",
        ),
    ],
)
def test_posterior_of_another_model_is_refused(model, match):
    posterior = gaussian(network())
    model = model()
    model.build((None, 2))
    before = values(model.variables)
    with pytest.raises(ValueError, match=match):
        with posterior.sampled(model, seed=0):
            raise AssertionError("the block must not run")
    assert_equal(values(model.variables), before)


def test_leaf_names_tell_two_variables_of_one_shape_apart():
    model = dense_with_scale()
    posterior = Gaussian([np.zeros((2, 3))] + [np.zeros(3)] * 3)
    posterior.check(model)
    named = Gaussian(posterior.mean(), names=["kernel", "bias", "beta", "x"])
    with pytest.raises(ValueError, match="must be 'beta'.*Received: 'gamma'"):
        named.check(model)


POINTS = {
    "no variance": lambda m: Gaussian(m.get_weights()),
    "no columns": lambda m: LowRankGaussian(m.get_weights(), None),
    "zero variance": lambda m: Gaussian(
        m.get_weights(), [0 * w for w in m.get_weights()]
    ),
    "scale 0": lambda m: low_rank(m, scale=0.0),
    "ensemble": lambda m: Ensemble.from_models([m]),
    "mixture": lambda m: Mixture([gaussian(m).with_scale(0)]),
}


@pytest.mark.parametrize("kind", POINTS)
def test_posterior_without_spread_is_predicted_with_one_sample(kind):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    prediction = keras_bdl.predict(
        model,
        np.ones((4, 2)),
        POINTS[kind](model),
        samples=5,
        options=keras_bdl.prediction.PredictOptions(
            task="classification", from_logits=True
        ),
        verbose=0,
    )
    assert prediction.num_samples == 1
    report = keras_bdl.evaluate(prediction, np.zeros(4, int))
    assert np.isnan(report.mutual_information)


def test_posterior_with_a_spread_is_no_point():
    model = network()
    columns_alone = LowRankGaussian([0.0], [0.0], [[1.0, -1.0]])
    two_points = Mixture([Gaussian([0.0]), Gaussian([1.0])])
    spread = [gaussian(model), columns_alone, two_points, MCDropout()]
    for posterior in [*spread, Mixture([gaussian(model)])]:
        assert len(posterior.seeds(0, 5)) == 5


def test_repr_says_the_kind_and_the_size():
    model = network()
    size = "num_variables=6, num_weights=19"
    scaled = f"{size}, scale=0.5"
    point = Gaussian([np.zeros((2, 3)), 0.0])
    assert repr(gaussian(model).with_scale(0.5)) == f"Gaussian({scaled})"
    assert (
        repr(low_rank(model)) == f"LowRankGaussian({scaled}, rank=3, "
        "block=False)"
    )
    assert (
        repr(Ensemble([[np.zeros(4)]] * 2))
        == "Ensemble(num_variables=1, num_weights=4, num_members=2)"
    )
    assert (
        repr(Mixture([point, MCDropout()]))
        == "Mixture(components=[Gaussian(num_variables=2, num_weights=7, "
        "scale=1.0), MCDropout()])"
    )


def test_a_path_without_a_directory_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="of `path`.*path='no/dir/x'"):
        MCDropout().save("no/dir/x")
    MCDropout().save("x")


@pytest.mark.parametrize("state", [{"kind": "a>B"}, {"weights": np.ones(2)}, 3])
def test_a_file_of_something_else_is_refused(state, storage):
    write_state(storage / "p.bdl", state)
    with pytest.raises(
        ValueError, match="must hold a posterior.*Received: kind="
    ):
        load(storage / "p.bdl")
