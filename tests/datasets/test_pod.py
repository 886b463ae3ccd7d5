"""Pipelines on the hosts of a TPU pod, which have no Python of ours."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from keras_bdl import datasets
from tests.datasets import pod
from tests.helpers import two_workers
from tests.processes import Command


def operations(data):
    """Returns the names of all operations of a pipeline."""
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(data),
        external_state_policy=1,
    )
    graph = graph_pb2.GraphDef.FromString(serialized.numpy())
    functions = (f.node_def for f in graph.library.function)
    return {node.op for nodes in (graph.node, *functions) for node in nodes}


def calls_python(data):
    return any("PyFunc" in name for name in operations(data))


def test_no_part_of_a_data_set_calls_python(data_dir):
    data = datasets.load("cifar10", data_dir=data_dir, batch_size=20)
    context = tf.distribute.InputContext(2, 1, 4)
    for part in (
        *(data.train, data.train_eval, data.test, data.ood["noise"]),
        data.train_on_host(context),
        datasets.EpochCounter().batches(np.zeros((8, 2)), 4, seed=0),
        datasets.EpochCounter().batches(
            tf.data.Dataset.range(8), 4, seed=0, buffer_size=2
        ),
        datasets.padded(data.test, 20),
    ):
        assert not calls_python(part)
    with_python = data.train.map(
        lambda x, y: tf.numpy_function(abs, [x], tf.float32)
    )
    assert calls_python(with_python)


@pytest.fixture(scope="module")
def found(data_dir, tmp_path_factory):
    file = tmp_path_factory.mktemp("pod") / "found.npz"
    addresses = json.loads(two_workers()[0])["cluster"]["worker"]
    hosts = [
        Command("tests.datasets.pod", "host", index, *addresses)
        for index in range(2)
    ]
    command = Command(
        *("tests.datasets.pod", "coordinator", data_dir, file, *addresses)
    )
    try:
        printed, _ = command.communicate()
    finally:
        for one in hosts:
            one.kill()
            one.communicate()
    assert command.returncode == 0, printed
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("epoch", pod.EPOCHS)
def test_hosts_of_a_pod_share_the_batches_of_one_host(found, epoch):
    one = found[f"one{epoch}"]
    assert len(one) == 100 // 24
    hosts = [found[f"host{index}_{epoch}"] for index in range(2)]
    for index, own in enumerate(hosts):
        assert f"task:{index}/" in str(found[f"device{index}"])
        # Two replicas of six examples in every step.
        assert own.shape[:2] == (2 * len(one), 6)
    for step, batch in enumerate(one):
        of_hosts = [own[2 * step : 2 * step + 2] for own in hosts]
        # The replicas take turns between the hosts.
        replicas = np.stack(of_hosts, 1).reshape(batch.shape)
        np.testing.assert_array_equal(replicas, batch)


def test_epochs_of_a_pod_differ(found):
    first, other = (found[f"host0_{epoch}"] for epoch in pod.EPOCHS)
    assert np.any(first != other)
