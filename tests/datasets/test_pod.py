"""Pipelines on the hosts of a TPU pod, which have no Python of ours."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from keras_bdl import datasets
from tests.datasets import pod
from tests.datasets.conftest import write
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


@pytest.fixture
def large(tmp_path):
    """A set of 101 images in three files, larger than its shuffle buffer."""
    write(tmp_path, "cifar10", 32, {"train": 101, "test": 10}, files=3)
    return datasets.load(
        pod.LARGE, data_dir=tmp_path, ood=(), augment=False, batch_size=24
    )


def images_of(data, index, epoch):
    """Returns the numbers of the images of a host, in their order."""
    data.epochs.next_epoch = epoch
    context = tf.distribute.InputContext(2, index, 4)
    batches = [x.numpy() for x, _ in data.train_on_host(context)]
    assert [len(batch) for batch in batches] == [6] * 8
    pixels = np.concatenate(batches)[:, 0, 0, 0]
    stored = pod.LARGE.normalize(
        tf.reshape(tf.range(101.0), (101, 1, 1, 1)) * tf.ones(3)
    )
    values = stored.numpy()[:, 0, 0, 0]
    return np.abs(pixels[:, None] - values).argmin(1)


def test_hosts_read_own_files_of_a_large_set_and_share_all_its_images(large):
    for epoch in (0, 1):
        first, second = (images_of(large, index, epoch) for index in (0, 1))
        # The first host has the larger half.
        assert max(first) <= 50 < min(second)
        assert len({*first, *second}) == 96
    np.testing.assert_array_equal(images_of(large, 1, 1), second)
    assert np.any(images_of(large, 1, 0) != second)
    files = [f"train.tfrecord-0000{i}-of-00003" for i in range(3)]
    for index, own in enumerate([{0, 1}, {1, 2}]):
        context = tf.distribute.InputContext(2, index, 4)
        graph = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(
                large.train_on_host(context)
            ),
            external_state_policy=1,
        ).numpy()
        assert {i for i in range(3) if files[i].encode() in graph} == own


def test_a_selection_of_classes_is_shared_out_by_reading_all_files(tmp_path):
    write(tmp_path, "cifar10", 32, {"train": 100, "test": 10}, files=2)
    data = datasets.load(
        pod.LARGE, data_dir=tmp_path, ood=(), classes=range(5), batch_size=24
    )
    sizes = [
        sum(len(y) for _, y in data.train_on_host(context))
        for context in (
            tf.distribute.InputContext(2, index, 4) for index in range(2)
        )
    ]
    assert sizes == [24, 24]


@pytest.mark.parametrize("index", range(2))
def test_host_of_a_pod_reads_what_this_machine_would_read(
    index, found, data_dir
):
    data = datasets.load(pod.LARGE, data_dir=data_dir, ood=(), **pod.OPTIONS)
    data.epochs.next_epoch = pod.EPOCHS[1]
    context = tf.distribute.InputContext(2, index, pod.REPLICAS)
    here = np.stack([x for x, _ in data.train_on_host(context)])
    there = found[f"largehost{index}_{pod.EPOCHS[1]}"]
    assert len(there) == 2 * (100 // 24)
    np.testing.assert_array_equal(there, here)
    assert f"task:{index}/" in str(found[f"largedevice{index}"])
