"""The environment of a TPU: variables before TensorFlow starts, then checks.

`train.py` and `examples/papers/run.py` share this module. `pods.md` has the
sources of the variables.
"""

import argparse
import importlib.util
import os
from pathlib import Path

LIBRARY = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
C_API = "NEXT_PLUGGABLE_DEVICE_USE_C_API"
IMAGE = Path("/lib/libtpu.so")  # on the images of Google


def prepare(words, environ=os.environ, default="auto"):
    """Sets and checks the variables. Call it before TensorFlow is imported.

    Args:
        words: The command line.
        environ: The environment. Defaults to that of this process.
        default: The strategy of a command line without `--strategy`. Defaults
            to `"auto"`.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--strategy", default=default)
    name = tpu_name(parser.parse_known_args(words)[0].strategy, environ)
    if name == "local":
        _prepare_one_host(environ)
    elif name is not None:
        _prepare_pod(name, environ)


def tpu_name(strategy, environ):
    """Returns the name of the TPU, `"local"`, or `None` without a TPU.

    Args:
        strategy: The name of a strategy, see `keras_bdl.distribute.strategy`.
        environ: The environment.
    """
    if strategy.startswith("tpu:"):
        return strategy.removeprefix("tpu:")
    if strategy == "tpu":
        return environ.get("TPU_NAME") or "local"
    is_auto = strategy == "auto" and not environ.get("TF_CONFIG")
    return (environ.get("TPU_NAME") or None) if is_auto else None


def _prepare_one_host(environ):
    if environ.get("TPU_LOAD_LIBRARY") == "0":
        raise SystemExit(
            "`TPU_LOAD_LIBRARY=0` is for pods, and here keeps TensorFlow from "
            "the TPU of this machine. Unset the variable, or name the pod with "
            "`--strategy tpu:<name>` or `TPU_NAME`."
        )
    library = environ.get(LIBRARY)
    if library and not Path(library).exists():
        raise SystemExit(
            f"`{LIBRARY}` must be the path of `libtpu.so`. "
            f"Received: {library}, which does not exist"
        )
    library = library or _library()
    if library:
        environ[LIBRARY] = str(library)
        environ.setdefault(C_API, "true")


def _library():
    """Returns the path of `libtpu.so` on an image or in the package."""
    if IMAGE.exists():
        return IMAGE
    found = importlib.util.find_spec("libtpu")
    if found is None or found.origin is None:
        return None
    library = Path(found.origin).with_name("libtpu.so")
    return library if library.exists() else None


def _prepare_pod(name, environ):
    if environ.setdefault("TPU_LOAD_LIBRARY", "0") != "0":
        raise SystemExit(
            "`TPU_LOAD_LIBRARY` must be 0 on a pod, where another process "
            "holds the chips of each host. Received: "
            f"TPU_LOAD_LIBRARY={environ['TPU_LOAD_LIBRARY']}, for the TPU "
            f"{name!r}. For the TPU of one machine, set `TPU_NAME=local`."
        )
    worker = environ.get("TPU_WORKER_ID") or "0"
    if worker != "0":
        raise SystemExit(
            "Start the command on worker 0 alone: one coordinator trains on "
            f"all hosts of a pod. Received: TPU_WORKER_ID={worker}"
        )


def num_hosts(strategy):
    """Returns the number of machines whose devices this process directs.

    Args:
        strategy: A `tf.distribute.Strategy`.
    """
    if strategy.num_replicas_in_sync == 1:
        return 1
    devices = strategy.extended.worker_devices
    return len({name.rpartition("/device:")[0] for name in devices})


def check_run(*, batch, replicas, hosts, reads_files, data_dir):
    """Raises an error for a run that the devices cannot do.

    Args:
        batch: Examples in a step.
        replicas: Number of replicas.
        hosts: Number of machines that this process directs.
        reads_files: Whether the data come from files.
        data_dir: The folder of the files, or `None`.
    """
    if batch % replicas:
        raise SystemExit(
            "`--batch` must be a multiple of the number of replicas, so that "
            f"all have equally many examples. Received: --batch {batch}, for "
            f"{replicas} replicas"
        )
    if hosts > 1 and reads_files and "://" not in (data_dir or ""):
        raise SystemExit(
            "`--data-dir` must be in a bucket, such as "
            "gs://my-bucket/tensorflow_datasets, because every host reads the "
            f"files itself. Received: --data-dir {data_dir}, for {hosts} hosts"
        )
