"""Lowers the steps of a method to programs for TPUs.

    python tpu/lowering.py CASE CHIPS BATCH FOLDER STEP ...

`compile_check.py` starts this script for every case. It writes `<step>.mlir`,
and `<step>.json` with the facts of the step.
"""

import json
import re
import sys
from pathlib import Path

import keras
import programs
import tensorflow as tf
from cases import Case
from chips import Chips

from keras_bdl._data._dataset_size import dataset_sizes
from keras_bdl._keras import inner_optimizer
from keras_bdl._models._trainer import build_optimizer


class NotLowered(Exception):
    """A step cannot become a program for TPUs; the message says why."""


class Steps:
    """The model of a case, as one of many chips runs it.

    Args:
        case: The `Case`.
        chips: How many there are.
    """

    def __init__(self, case: Case, chips: int):
        keras.config.set_dtype_policy(case.policy)
        self._strategy = Chips(chips)
        with self._strategy.scope():
            self.model = case.build()
            build_optimizer(self.model)
            methods = self.model.objective, inner_optimizer(self.model)
            for size in dataset_sizes(self.model, methods):
                size.count(case.network.dataset_size)  # as `fit` does
        shape = (case.batch_of(chips), *self.model.input_shape[1:])
        self._x = tf.TensorSpec(shape, "float32", "x")
        self._y = tf.TensorSpec(shape[:1], "int32", "y")

    @property
    def weight_bytes(self):
        """Bytes of the trainable variables of the model."""
        return sum(
            v.value.dtype.size * v.value.shape.num_elements()
            for v in self.model.trainable_variables
        )

    def train(self):
        """Returns the training step as StableHLO."""
        return lowered(self._run(self.model.train_step), self._x, self._y)

    def predict(self):
        """Returns the step of a prediction as StableHLO."""
        return lowered(self._run(self.model.predict_step), self._x)

    def _run(self, step):
        return lambda *data: self._strategy.run(step, args=(data,))


def lowered(function, *specs):
    """Returns the StableHLO of a function; raises `NotLowered`.

    Args:
        function: Of tensors.
        *specs: Their `tf.TensorSpec`.
    """
    if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 21):
        raise NotLowered(
            "Programs for TPUs can be written by TensorFlow 2.21 or later. "
            f"Received: tensorflow {tf.__version__}"
        )
    compiled = tf.function(function, jit_compile=True, autograph=False)
    try:
        text = compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    except (tf.errors.OpError, ValueError, NotImplementedError) as error:
        raise NotLowered(_culprit(str(error))) from error
    return text


def facts(text):
    """Returns what the StableHLO of a step shows.

    Args:
        text: What `lowered` returned.
    """
    found = {"complaints": programs.complaints(text)}
    if not found["complaints"]:  # dynamic shapes have no size
        found["lowered_collectives"] = len(programs.lowered_collectives(text))
        found["result_bytes"] = programs.result_bytes(text)
    return found


def _culprit(message):
    """Returns the operations that a message names, or the whole message."""
    unsupported = re.search(r"on XLA_\w+: (.*)", message)
    if unsupported is not None:
        return f"unsupported operation: {unsupported[1]}"
    return " ".join(message.split())


def main():
    """Lowers the steps of one case."""
    name, chips, batch, folder, *steps = sys.argv[1:]
    case, folder = Case(name, int(batch) or None), Path(folder)
    of_case = Steps(case, int(chips))
    for step in steps:
        found = {
            "batch_size": case.batch_of(int(chips)) * int(chips),
            "weight_bytes": of_case.weight_bytes,
            "reduced": case.method.reduced,
            "versions": {
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
            },
        }
        try:
            text = getattr(of_case, step)()
        except NotLowered as error:
            found["error"] = str(error)
        else:
            (folder / f"{step}.mlir").write_text(text)
            found |= facts(text)
        (folder / f"{step}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
