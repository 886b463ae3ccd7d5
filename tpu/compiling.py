"""Compiles programs for TPUs, with JAX and libtpu, on a machine without one.

    python tpu/compiling.py PROGRAM TOPOLOGY RESULT.json

`compile_check.py` starts this script in a separate process for every program,
because TensorFlow and JAX cannot share the XLA of libtpu.
"""

import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path

# Otherwise libtpu asks the network which machine this is.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TPU_SKIP_MDS_QUERY"] = "1"
os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"
# No chip exists, so processes cannot compete for one.
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import programs
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax.experimental import topologies


def devices_of(topology: str):
    """Returns the chips of a topology, such as `"v5e:2x2"`, without a TPU.

    Args:
        topology: Name of the kind, and how many chips there are on each side.
    """
    return topologies.get_topology_desc(topology, platform="tpu").devices


def compiled(text: str, devices):
    """Returns the facts of XLA about a program that every chip runs.

    Args:
        text: StableHLO.
        devices: What `devices_of` returned.
    """
    with mlir.make_ir_context():
        module = ir.Module.parse(programs.for_jax(text))
    options = compiler.get_compile_options(
        num_replicas=len(devices),
        num_partitions=1,
        device_assignment=[[device.id] for device in devices],
    )
    start = time.perf_counter()
    # No public function of JAX compiles a program for absent chips.
    executable = devices[0].client.compile(
        module, xla_client.DeviceList(tuple(devices)), options
    )
    seconds = time.perf_counter() - start
    memory = executable.get_compiled_memory_stats()
    costs = executable.cost_analysis()
    hlo = executable.hlo_modules()[0].to_string()
    collectives = programs.compiled_collectives(hlo)
    return hlo, {
        "device": devices[0].device_kind,
        "compile_seconds": seconds,
        "flops": costs["flops"],
        "bytes": costs["bytes accessed"],
        "memory": {
            # Memory that outputs share with arguments counts once.
            "variables_and_data": memory.argument_size_in_bytes,
            "new_outputs": memory.output_size_in_bytes
            - memory.alias_size_in_bytes,
            "temporary": memory.temp_size_in_bytes,
            "program": memory.generated_code_size_in_bytes,
        },
        "collectives": len(collectives),
        "collective_bytes": sum(size for _, size in collectives),
    }


def main():
    """Compiles one program, and writes the result."""
    program, topology, result = sys.argv[1:]
    devices = devices_of(topology)
    try:
        hlo, found = compiled(Path(program).read_text(), devices)
    except jax.errors.JaxRuntimeError as error:
        found = {"error": str(error)}
    else:
        Path(program).with_suffix(".hlo").write_text(hlo)
    found["versions"] = {
        name: importlib.metadata.version(name) for name in ("jax", "libtpu")
    }
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
