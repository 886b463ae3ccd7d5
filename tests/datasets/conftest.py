import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds


def write(folder, name, size, splits, files=1):
    """Writes files of TensorFlow Datasets like those of a download.

    Image i is a square of value i, its label i % 10.
    """
    builder = tfds.builder(name, data_dir=folder)
    path = pathlib.Path(builder.data_dir)
    path.mkdir(parents=True)
    features, infos = builder.info.features, []
    for split, count in splits.items():
        template = tfds.core.ShardedFileTemplate(
            dataset_name=name,
            data_dir=path,
            split=split,
            filetype_suffix="tfrecord",
        )
        rows = np.array_split(range(count), files)
        for index, of_file in enumerate(rows):
            file = template.sharded_filepath(
                shard_index=index, num_shards=files
            )
            with tf.io.TFRecordWriter(str(file)) as writer:
                for i in of_file:
                    example = {
                        "image": np.full((size, size, 3), i, "uint8"),
                        "label": i % 10,
                    }
                    if "id" in features:
                        example["id"] = str(i)
                    encoded = features.encode_example(example)
                    writer.write(features.serialize_example(encoded))
        infos.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[len(of_file) for of_file in rows],
                num_bytes=0,
                filename_template=template,
            )
        )
    builder.info.set_splits(tfds.core.splits.SplitDict(infos))
    builder.info.write_to_directory(path)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorflow_datasets")
    write(folder, "cifar10", 32, {"train": 100, "test": 40})
    write(folder, "stl10", 96, {"train": 20, "test": 30})
    return str(folder)
