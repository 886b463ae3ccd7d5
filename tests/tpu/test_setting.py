"""The settings of papers, and the environment of a TPU."""

import sys
import types

import environment
import keras
import numpy as np
import paper_settings
import pytest
import train

import keras_bdl as bdl
from keras_bdl import datasets
from tests.datasets.conftest import write
from tests.helpers import cross_entropy


def test_setting_of_imagenet_is_that_of_the_paper():
    args = train.parse(["--setting", "atmc-imagenet"])
    # Heek and Kalchbrenner, sections 4.3, 5 and 5.2.
    assert args.network == "ResNetPlusPlus50" and args.data == "imagenet2012"
    assert (args.epochs, args.burn_in, args.cycle) == (1000, 150, 20)
    assert (args.learning_rate, args.batch) == (5e-4, 1024)
    assert args.options == {
        "average_speed": 3e-4,
        "max_speed": 1e-3,
        "friction": 0.9,
        "temperature": 1.0,
        "prior": None,
    }
    assert args.method == "atmc" and args.bfloat16
    (prior,) = args.network_options.values()
    assert prior.get_config() == bdl.priors.Laplace(5.0).get_config()


def test_setting_of_cifar_is_that_of_the_paper():
    args = train.parse(["--setting", "atmc-cifar10"])
    # Section 5.1.
    assert args.network == "ResNetPlusPlus56" and args.data == "cifar10"
    assert (args.epochs, args.burn_in, args.cycle) == (1000, 150, 50)
    assert (args.learning_rate, args.batch) == (1e-3, 128)
    assert args.options["average_speed"] == 3e-4
    assert args.options["max_speed"] == 1e-3
    assert args.network_options["filters"] == 32
    assert not args.bfloat16  # the paper trains on a GPU


@pytest.mark.parametrize("name", paper_settings.SETTINGS)
def test_network_of_a_setting_has_the_priors_of_the_paper(name):
    args = train.parse(["--setting", name])
    # In small: a stage of one block, with the same layers.
    options = {**args.network_options, "filters": 2}
    model = bdl.applications.ResNetPlusPlus(8, (8, 8, 3), 3, **options)
    optimizer = bdl.ATMC(args.learning_rate, dataset_size=10, **args.options)
    model.compile(optimizer, "mse")
    assert optimizer.prior is None
    for layer in model.layers:
        if layer.weights:
            scale, direction = (
                layer.scale_regularizer,
                layer.direction_regularizer,
            )
            assert scale.scale == 5.0
            assert isinstance(direction, bdl.extend.UnitDirection)


def test_flags_override_a_setting():
    words = "--epochs 240 --no-bfloat16 --learning-rate 1e-3 --cycle 10"
    options = ["--options", '{"friction": 0.8}']
    args = train.parse(["--setting", "atmc-imagenet", *words.split(), *options])
    assert (args.epochs, args.learning_rate, args.cycle) == (240, 1e-3, 10)
    assert not args.bfloat16 and args.batch == 1024
    assert args.options["friction"] == 0.8
    assert args.options["max_speed"] == 1e-3


def test_another_method_or_network_does_not_get_the_options_of_a_setting():
    words = ["--setting", "atmc-cifar10", "--method", "sgld"]
    args = train.parse([*words, "--network", "ResNetPlusPlus20"])
    assert args.options == {} == args.network_options
    assert args.cycle == 50


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (["--strategy", "default"], {"TPU_NAME": "pod"}, {"TPU_NAME": "pod"}),
        ([], {"TPU_NAME": "pod"}, {"TPU_NAME": "pod", "TPU_LOAD_LIBRARY": "0"}),
        (["--strategy", "tpu:pod"], {}, {"TPU_LOAD_LIBRARY": "0"}),
        (
            ["--strategy=tpu", "--smoke"],
            {environment.LIBRARY: __file__},
            {environment.LIBRARY: __file__, environment.C_API: "true"},
        ),
    ],
)
def test_variables_of_a_tpu_are_set(words, before, after):
    environment.prepare(words, before)
    assert before == after


def test_library_of_the_package_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "IMAGE", tmp_path / "none")
    (tmp_path / "libtpu").mkdir()
    for name in ("__init__.py", "libtpu.so"):
        (tmp_path / "libtpu" / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "libtpu", raising=False)
    variables = {}
    environment.prepare(["--strategy", "tpu"], variables)
    assert variables == {
        environment.LIBRARY: str(tmp_path / "libtpu" / "libtpu.so"),
        environment.C_API: "true",
    }


@pytest.mark.parametrize(
    ("strategy", "variables", "message"),
    [
        ("tpu", {"TPU_LOAD_LIBRARY": "0"}, "for pods.*Unset"),
        ("tpu", {environment.LIBRARY: "/no/file"}, "path.*no/file"),
        ("tpu:pod", {"TPU_LOAD_LIBRARY": "1"}, "must be 0 on a pod.*'pod'"),
        ("tpu:pod", {"TPU_WORKER_ID": "2"}, "on worker 0 alone.*=2"),
    ],
)
def test_wrong_variables_are_refused(strategy, variables, message):
    with pytest.raises(SystemExit, match=message):
        environment.prepare(["--strategy", strategy], variables)


RUN = {
    **{"batch": 1024, "replicas": 32, "hosts": 4, "reads_files": True},
    "data_dir": "gs://bucket/data",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 1000}, "a multiple of the number.*1000, for 32"),
        ({"data_dir": "/mnt/data"}, "in a bucket.*/mnt/data, for 4 hosts"),
        ({"data_dir": None}, "in a bucket.*None, for 4 hosts"),
    ],
)
def test_run_that_a_pod_cannot_do_is_refused(changes, message):
    environment.check_run(**RUN)
    environment.check_run(**RUN | {"hosts": 1, "data_dir": None})
    environment.check_run(**RUN | {"reads_files": False, "data_dir": None})
    with pytest.raises(SystemExit, match=message):
        environment.check_run(**RUN | changes)


def test_hosts_are_counted(mirrored):
    devices = [
        f"/job:worker/replica:0/task:{task}/device:TPU:{chip}"
        for task in range(4)
        for chip in range(8)
    ]
    pod = types.SimpleNamespace(
        num_replicas_in_sync=32,
        extended=types.SimpleNamespace(worker_devices=devices),
    )
    assert environment.num_hosts(pod) == 4
    assert environment.num_hosts(mirrored) == 1
    assert environment.num_hosts(bdl.distribute.strategy("default")) == 1


def test_data_of_hosts_train_as_the_data_of_one(tmp_path, mirrored):
    write(tmp_path, "cifar10", 32, {"train": 50, "test": 10})
    with mirrored.scope():
        model = bdl.Sequential(
            [
                keras.Input((32, 32, 3)),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
        model.compile(keras.optimizers.SGD(1e-3), cross_entropy())
    start, paths, seen = model.get_weights(), [], []
    batches = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(batch)
    )
    for is_pod in (False, True):
        splits = datasets.load(
            "cifar10", data_dir=tmp_path, batch_size=8, drop_remainder=True
        )
        data = splits.train
        if is_pod:
            data = train.on_hosts(splits, mirrored, steps=6)
        model.set_weights(start)
        seen.clear()
        model.fit(data, epochs=2, verbose=0, callbacks=[splits.epochs, batches])
        assert seen == 2 * [*range(6)]
        paths.append(model.get_weights())
    for before, one, other in zip(start, *paths, strict=True):
        assert np.any(before != one)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
