import numpy as np
import pytest

from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import MCDropout
from keras_bdl.posteriors import Mixture
from keras_bdl.posteriors import load
from keras_bdl.saving import write_state
from tests.posteriors.networks import assert_equal
from tests.posteriors.networks import gaussian
from tests.posteriors.networks import low_rank
from tests.posteriors.networks import network

KINDS = {
    "mean": lambda m: Gaussian(gaussian(m).mean(), names=names(m)),
    "Gaussian": gaussian,
    "LowRankGaussian": lambda m: low_rank(m, scale=0.3),
    "block": lambda m: low_rank(m, block=True),
    "diagonal": lambda m: low_rank(m, rank=0),
    "Ensemble": lambda m: Ensemble.from_models([m, network()]),
    "Mixture": lambda m: Mixture([gaussian(m), low_rank(m)], [1, 2]),
}


def names(model):
    return [v.name for v in model.trainable_variables]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_has_the_same_draws_and_knows_its_model(kind, stream, tmp_path):
    model = network()
    posterior = KINDS[kind](model)
    posterior.save(tmp_path / "p.bdl")
    loaded = load(tmp_path / "p.bdl", stream=stream)
    assert type(loaded) is type(posterior)
    for seed in range(3):
        assert_equal(loaded.sample(seed), posterior.sample(seed))
    loaded.check(model)
    with pytest.raises(ValueError, match=r"Variable 0.*\(2, 3\).*\(2, 4\)"):
        loaded.check(network(units=4))


def test_mc_dropout_comes_back(tmp_path):
    MCDropout().save(tmp_path / "p.bdl")
    assert type(load(tmp_path / "p.bdl")) is MCDropout


@pytest.mark.parametrize("state", [{"kind": "a>B"}, {"weights": np.ones(2)}, 3])
def test_a_file_of_something_else_is_refused(state, tmp_path):
    write_state(tmp_path / "p.bdl", state)
    with pytest.raises(ValueError, match="one of a posterior.*Received: kind="):
        load(tmp_path / "p.bdl")
