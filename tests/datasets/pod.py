"""Two hosts of a pod and their coordinator, in three processes.

    python -m tests.datasets.pod host <index> <address> <address>
    python -m tests.datasets.pod coordinator <folder> <file> <address> <address>

The hosts run no Python of the pipeline: they only wait for graphs.
"""

import dataclasses
import sys

import numpy as np
import tensorflow as tf

from keras_bdl import datasets

EPOCHS = (0, 5)
# A set that is larger than its shuffle buffer: each host reads own files.
LARGE = dataclasses.replace(datasets.SPECS["cifar10"], shuffle_buffer=30)
OPTIONS = {"batch_size": 24, "image_size": 28, "drop_remainder": True}
REPLICAS = 4


def host(index, *addresses):
    cluster = tf.train.ClusterSpec({"worker": addresses})
    tf.distribute.Server(cluster, "worker", int(index)).join()


def coordinator(folder, file, *addresses):
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec({"worker": addresses}), job_name="coordinator"
    )
    found = {}
    for name in ("cifar10", LARGE):
        data = datasets.load(name, data_dir=folder, ood=(), **OPTIONS)
        read(data, found, "large" * (name is LARGE))
    np.savez(file, **found)


def read(data, found, name):
    parts = []
    for index in range(2):
        with tf.device(f"/job:worker/task:{index}"):
            context = tf.distribute.InputContext(2, index, REPLICAS)
            parts.append(data.train_on_host(context))
    for epoch in EPOCHS:
        data.epochs.next_epoch = epoch
        found[f"{name}one{epoch}"] = [x.numpy() for x, _ in data.train]
        for index, part in enumerate(parts):
            with tf.device(f"/job:worker/task:{index}"):
                batches = [x for x, _ in part]
            found[f"{name}host{index}_{epoch}"] = [x.numpy() for x in batches]
            found[f"{name}device{index}"] = batches[0].backing_device


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
