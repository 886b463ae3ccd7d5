import keras
import numpy as np
import pytest

from keras_bdl.callbacks import SWAG
from keras_bdl.layers import RadialDense
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import Layerwise
from keras_bdl.posteriors import MCDropout
from keras_bdl.posteriors import Mixture
from keras_bdl.posteriors import load
from tests.helpers import assert_equal
from tests.helpers import assert_moment
from tests.posteriors.networks import gaussian
from tests.posteriors.networks import low_rank
from tests.posteriors.networks import network
from tests.posteriors.networks import values


def points(*places):
    return [Gaussian([np.array([float(p)])]) for p in places]


def test_components_are_drawn_with_their_weights():
    posterior = Mixture(points(0, 1), weights=[3, 1])
    drawn = [posterior.sample(seed)[0][0] for seed in range(2000)]
    assert_moment(np.mean(drawn), 0.25, np.sqrt(0.25 * 0.75 / 2000))
    np.testing.assert_allclose(posterior.mean()[0], [0.25])


def test_components_are_independent_of_the_noise_inside_them():
    normals = [Gaussian([np.zeros(1)], [np.ones(1)]) for _ in range(2)]
    posterior = Mixture(normals, weights=[1, 31])
    inside = [
        posterior.sample(s)[0][0]
        for s in range(8000)
        if posterior.component(s) is normals[0]
    ]
    assert_moment(np.mean(inside), 0.0, 1 / np.sqrt(len(inside)))
    assert_moment(np.mean(np.square(inside)), 1.0, np.sqrt(2 / len(inside)))


@pytest.mark.parametrize("seed", range(3))
def test_seeds_give_each_component_its_share(seed):
    posterior = Mixture(points(0, 1, 2), weights=[2, 1, 1])
    seeds = posterior.seeds(seed, 8)
    drawn = [int(posterior.sample(s)[0][0]) for s in seeds]
    assert np.bincount(drawn).tolist() == [4, 2, 2]
    assert len(set(seeds)) == 8


def test_mixture_of_any_kinds_restores_the_model():
    model = network()
    posterior = Mixture(
        [
            Mixture([gaussian(model), low_rank(model)]),
            Ensemble.from_models([network(), network()]),
            MCDropout(),
        ]
    )
    before = values(model.variables)
    trained = values(model.trainable_variables)
    x = np.ones((64, 2), "float32")
    alone = model.predict(x, verbose=0)
    kinds = set()
    with posterior.drawing(model) as draw:
        for seed in posterior.seeds(0, 12):
            draw(seed)
            component = posterior.component(seed)
            kinds.add(type(component))
            is_dropout = isinstance(component, MCDropout)
            # The rows are the same, unless masks differ.
            assert (np.ptp(model.predict(x, verbose=0)) > 0) == is_dropout
            expected = trained if is_dropout else component.sample(seed)
            variables = component.variables(model) or model.trainable_variables
            assert_equal(values(variables), expected)
            assert posterior.needs_batch_norm(seed) == (
                isinstance(component, Mixture)
            )
    assert kinds == {Mixture, Ensemble, MCDropout}
    assert_equal(values(model.variables), before)
    np.testing.assert_array_equal(model.predict(x, verbose=0), alone)


def test_sample_and_mean_of_unlike_components_are_refused():
    model = network()
    posterior = Mixture([gaussian(model), Ensemble.from_models([model])])
    for ask in (
        lambda: posterior.sample(0),
        lambda: posterior.mean(),
        lambda: posterior.variables(model),
    ):
        with pytest.raises(ValueError, match="must cover the same variables"):
            ask()


def test_a_component_that_does_not_fit_is_named():
    model = network()
    posterior = Mixture([gaussian(model), gaussian(network(units=4))])
    with pytest.raises(ValueError, match=r"components\[1\]: .*Variable 0"):
        posterior.check(model)


@pytest.mark.parametrize(
    "weights",
    [[1], [1, 0], [1, -1], [1, np.nan], [1, np.inf], ["a", 1], 2],
)
def test_wrong_weights_are_refused(weights):
    with pytest.raises(
        ValueError, match=r"^`weights(\[[01]\])?` must (be|have)"
    ):
        Mixture(points(0, 1), weights)
    with pytest.raises(ValueError, match="at least one posterior"):
        Mixture([])


def test_equal_components_without_statistics_have_common_variables():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    posterior = Mixture([gaussian(model), Ensemble.from_models([model])])
    assert len(posterior.variables(model)) == 2


@pytest.mark.parametrize(
    ("components", "match"),
    [
        (points(0)[0], "`components` must be a list.*type Gaussian"),
        ([SWAG(0)], r"Pass its `\.posterior`\..*components\[0\] .*SWAG"),
        ([*points(0), 3], r"must be posteriors\. .*components\[1\] .*int"),
    ],
)
def test_components_must_be_a_list_of_posteriors(components, match):
    with pytest.raises(ValueError, match=match):
        Mixture(components)


@pytest.mark.parametrize("from_file", [False, True])
def test_variational_layers_bring_all_weights_of_their_network(
    from_file, tmp_path
):
    model, *networks = [
        keras.Sequential(
            [
                keras.Input((2,)),
                RadialDense(3, variational_bias=False),
                keras.layers.BatchNormalization(),
            ]
        )
        for _ in range(4)
    ]
    for value, net in enumerate(networks):
        for weight in net.weights:
            weight.assign(keras.ops.full_like(weight, value - 1.0))
    components = [Layerwise(net) for net in networks]
    posterior = Mixture(components)
    if from_file:
        posterior.save(tmp_path / "mixture")
        posterior = load(tmp_path / "mixture")
    before = values(model.variables)
    drawn = set()
    with posterior.drawing(model) as draw:
        for seed in posterior.seeds(0, 6):
            draw(seed)
            index = posterior.components.index(posterior.component(seed))
            drawn.add(index)
            with components[index].sampled(networks[index], seed):
                expected = values(networks[index].weights)
            assert_equal(values(model.weights), expected)
    assert drawn == {0, 1, 2}
    assert_equal(values(model.variables), before)


def test_networks_with_other_layers_beside_the_variational_ones_are_refused():
    one, other = (
        keras.Sequential([keras.Input((2,)), RadialDense(3), *more])
        for more in ([], [keras.layers.BatchNormalization()])
    )
    with pytest.raises(ValueError, match="must belong to this architecture"):
        Mixture([Layerwise(one), Layerwise(other)]).check(one)
