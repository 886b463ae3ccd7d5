import keras
import numpy as np
import pytest

from tests.distribute.cases import CASES_OF_WORKERS
from tests.distribute.cases import ON_WORKERS


def by_path(tree):
    """Returns the leaves of a result, by their path."""
    leaves = keras.tree.flatten_with_path(tree)
    return {path: np.asarray(leaf) for path, leaf in leaves if leaf is not None}


def assert_same(ours, theirs, **tolerance):
    ours, theirs = by_path(ours), by_path(theirs)
    assert ours.keys() == theirs.keys()
    for path, array in ours.items():
        if tolerance and array.dtype.kind == "f":
            np.testing.assert_allclose(
                array, theirs[path], err_msg=str(path), **tolerance
            )
        else:
            np.testing.assert_array_equal(
                array, theirs[path], err_msg=str(path)
            )


@pytest.mark.parametrize(
    "name", [n for n in CASES_OF_WORKERS if n != "collected"]
)
def test_both_workers_have_identical_results(name, results):
    first, second = results[name]
    # Except for the state of each replica.
    first, second = ({**r, "local": None} for r in (first, second))
    assert_same(first, second)


@pytest.mark.parametrize("name", [*ON_WORKERS, "plain_keras", "evaluated"])
def test_two_workers_train_and_predict_like_two_devices(name, results, devices):
    two = {**devices(name), "traces": None}
    ours = {**results[name][0], "traces": None}
    assert_same(ours, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ON_WORKERS)
def test_a_worker_traces_the_training_step_once(name, results):
    for result in results[name]:
        assert result["traces"] == [1, 1]


def test_workers_exchange_only_gradients_and_second_moments(results):
    for result in results["volume"]:
        weights, sizes = result["weights"], result["sizes"]
        assert sizes["SGD"] == sizes["ATMC"] == [weights]  # one all-reduce
        assert sizes["VOGN"] == [2 * weights]  # one of twice the size


def test_unsharded_data_of_workers_is_not_counted(results):
    for result in results["own_data"]:
        assert "SGLD(..., dataset_size=<examples>)" in result["SGLD"]
        assert result["SGLD of 32"] == 2


def test_workers_count_the_examples_of_all_workers(results):
    for result in results["counted"]:
        assert result == {"found": [64, 49, 49], "traces": 1}


def test_workers_with_different_seeds_are_refused(results):
    for result in results["unlike_seeds"]:
        assert "shuffle the data in the same way" in result["said"]
        assert result["said"].endswith("seeds of the workers [1, 2]")


def test_workers_share_the_noise_that_one_of_them_has_drawn(results):
    first, second = results["own_noise"]
    assert first["seed"] == second["seed"]
    assert first["objective"] == second["objective"]
    assert first["optimizer"][0] == 6  # iterations
    for result in results["own_noise"]:
        assert "`SGLD` must have the same `seed` on all" in result["said"]
        assert result["said"].endswith("seeds of the workers [0, 1]")


def test_callbacks_collect_the_same_everywhere_and_one_worker_saves(
    results, devices
):
    first, second = results["collected"]
    assert second["writes"] == 0 < first["writes"]
    ours, theirs = first | {"writes": 0}, second
    # Each replica has BatchNorm statistics of its own.
    assert np.any(ours.pop("statistics") != theirs.pop("statistics"))
    assert_same(ours, theirs)
    two = devices("collected")
    assert first["writes"] == two["writes"]
    assert_same(first, two, rtol=1e-4, atol=1e-5)


def test_sample_replicas_see_one_batch_and_draw_different_weights(
    results, devices
):
    assert_same(
        results["monte_carlo"][0], devices("monte_carlo"), rtol=1e-5, atol=1e-6
    )


def test_a_resumed_run_ends_like_an_uninterrupted_run(results, devices):
    for name, worker in (("resumed", 0), ("resumed", 1)):
        again = dict(results[name][worker])
        assert again.pop("killed")
        assert_same(again, results["long_run"][worker])


def test_a_replica_without_examples_keeps_its_statistics(results, devices):
    two = devices("empty")
    for worker, result in enumerate(results["empty"]):
        assert len(result["local"]) == 2  # mean and variance
        for path, (mine,) in result["local"].items():
            theirs = two["local"][path][worker]
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
            assert np.all(np.isfinite(mine))
    assert_same(results["empty"][0]["weights"], two["weights"], rtol=1e-5)
