"""The private names of Keras that the package uses, all in one file."""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl
from keras_bdl import _keras

PACKAGE = Path(keras_bdl.__file__).parent
ADAPTER = PACKAGE / "_keras.py"
# Public, in spite of their names.
OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
# Names of TensorFlow's pipelines so plain that our classes have them, too.
COMMON = {"_batch_size", "_count", "_inputs"}
# Names in the adapter that are its own.
OWN = {"_trainer_class", "_wrap"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def names_in_adapter():
    """Returns the private names, and names of modules that are private."""
    names = set()
    for node in ast.walk(ast.parse(ADAPTER.read_text())):
        if isinstance(node, ast.Attribute):
            of_module = ast.unparse(node.value) == "module"
            if is_private(node.attr) or of_module:
                names.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "_wrap",
            "getattr",
        ):
            if isinstance(node.args[1], ast.Constant):
                names.add(node.args[1].value)
    return names - OWN


@pytest.fixture(scope="module")
def holders():
    """Returns an object of Keras or TensorFlow that has each name."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", metrics=["mae"], weighted_metrics=["mse"])
    x, y = np.zeros((4, 3)), np.zeros((4, 2))
    model.train_on_batch(x, y)
    layer, optimizer = model.layers[0], model.optimizer
    losses, metrics = model._compile_loss, model._compile_metrics
    wrapper = keras.metrics.MeanMetricWrapper(keras.losses.mean_squared_error)
    embedding = keras.layers.Embedding(2, 2, mask_zero=True)
    cell = keras.layers.GRUCell(2, dropout=0.5, recurrent_dropout=0.5)
    cell.get_dropout_mask(tf.ones((1, 3)))
    cell.get_recurrent_dropout_mask(tf.ones((1, 2)))
    trainer = sys.modules[_keras._trainer_class().__module__]
    cloning = sys.modules[keras.models.clone_model.__module__]
    generators = sys.modules[keras.random.SeedGenerator.__module__]
    seeds = sys.modules[keras.utils.set_random_seed.__module__]
    # Its strategy can be made before TensorFlow starts, and only then.
    strategies = sys.modules[
        tf.distribute.MultiWorkerMirroredStrategy.__module__
    ]
    multi_worker = strategies.CollectiveAllReduceExtended
    backend = sys.modules[keras.layers.Layer.__module__].backend
    shuffled = tf.data.Dataset.range(2).shuffle(2, seed=1)
    one_device = tf.distribute.OneDeviceStrategy("CPU:0")
    distributed = one_device.experimental_distribute_dataset(shuffled)
    slices = tf.data.Dataset.range(4)
    return {
        "AutocastScope": backend,
        "_batch_size": slices.batch(2),
        "_count": slices.repeat(2),
        "_drop_remainder": slices.batch(2),
        "_make_function": model,
        "_call_has_training_arg": model,
        "_clear_losses": layer,
        "_clip_gradients": optimizer,
        "_clone_functional_model": cloning,
        "_clone_sequential_model": cloning,
        "_compile_loss": model,
        "_compile_metrics": model,
        "_compute_loss": model,
        "_direction": keras.metrics.MeanSquaredError(),
        "_distribute_strategy": model,
        "_distributed_dataset": trainer.TFEpochIterator(
            tf.distribute.get_strategy(), x=x, y=y
        ),
        "_distribution_strategy": optimizer,
        "_dropout_mask": cell,
        "_flat_losses": losses,
        "_flat_metrics": metrics,
        "_flat_weighted_metrics": metrics,
        "_flatten_layers": layer,
        "_flatten_y": metrics,
        "_fn": wrapper,
        "_fn_kwargs": wrapper,
        "_get_call_context": layer,
        "_get_replica_id_in_sync_group": multi_worker,
        "_get_variable_index": optimizer,
        "_in_multi_worker_mode": multi_worker,
        "_initial_epoch": model,
        "_embeddings": embedding,
        "_kernel": layer,
        "_keras_history": keras.Input((1,)),
        "_keras_mask": embedding(np.ones((1, 2))),
        "_dataset": iter(shuffled),
        "_filename": shuffled.cache(),
        "_inbound_nodes": keras.layers.Identity(),
        "_inputs": shuffled,
        "_iterators": iter(distributed),
        "_layers": layer,
        "_loss_ids": layer,
        "_loss_tracker": model,
        "_losses": layer,
        "_maybe_reset_call_context": layer,
        "_maybe_symbolic_build": model,
        "_non_trainable_variables": layer,
        "_recurrent_dropout_mask": cell,
        "_reshuffle_each_iteration": shuffled,
        "_seed": shuffled,
        "_seed2": shuffled,
        "_symbolic_build": model,
        "_tracker": layer,
        "_trainable_variables": optimizer,
        "_unpickle_model": keras.layers.Layer,
        "get_random_seed": seeds,
        "make_default_seed": generators,
        "optimizer": model,
        "global_seed_generator": generators,
        "reduce_per_replica": trainer,
    }


def test_keras_has_every_private_name(holders):
    missing = [n for n, holder in holders.items() if not hasattr(holder, n)]
    assert not missing, (
        f"Keras {keras.__version__} with TensorFlow {tf.__version__} has not "
        f"{missing}. Change the functions of {ADAPTER.name} that use them."
    )


def test_every_private_name_of_the_adapter_is_checked(holders):
    assert names_in_adapter() | set(_keras.OVERRIDDEN) == set(holders)


def test_the_tracker_and_the_call_context_have_what_the_adapter_uses(holders):
    tracker = holders["_tracker"]._tracker
    assert tracker.locked is True
    for name in ("lock", "unlock", "replace_tracked_value"):
        assert callable(getattr(tracker, name))
    layer = holders["_get_call_context"]
    assert _keras.entry_layer(layer) is layer
    # The context that `entry_layer` began has ended.
    other = keras.layers.Identity()
    assert _keras.entry_layer(other) is other


def sources():
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != ADAPTER:
            yield path.relative_to(PACKAGE), ast.parse(path.read_text())


def own_names():
    """Returns the private names that the package defines."""
    names = set()
    for _, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(
                node.ctx, ast.Store
            ):
                of_self = getattr(node, "value", None)
                if of_self is None:
                    names.add(node.id)
                elif ast.unparse(of_self) in ("self", "cls"):
                    names.add(node.attr)
            elif isinstance(node, ast.Subscript):
                # `vars(layer)["_name"] = ...`, past the tracking of Keras
                if isinstance(node.slice, ast.Constant) and isinstance(
                    node.ctx, ast.Store
                ):
                    names.add(str(node.slice.value))
    return {name for name in names if is_private(name)}


def test_no_other_file_uses_a_private_name_of_keras():
    of_self = COMMON | set(_keras.OVERRIDDEN)
    of_keras = names_in_adapter() - of_self
    of_keras = {name for name in of_keras if is_private(name)}
    own = (own_names() - of_keras) | OF_NAMED_TUPLES
    found = []
    for path, tree in sources():
        for node in ast.walk(tree):
            name, allowed = None, True
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                name, owner = node.attr, ast.unparse(node.value)
                allowed = name in own
                if name in of_self:
                    allowed = owner in ("self", "super()")
            elif isinstance(node, ast.Constant):
                name, allowed = node.value, node.value not in of_keras
            elif isinstance(node, ast.FunctionDef):
                name, allowed = node.name, node.name not in of_keras
            if not allowed:
                found.append(f"{path}:{node.lineno} {name}")
    assert not found, f"Move these into {ADAPTER.name}: {found}"


def test_no_file_imports_from_the_private_modules_of_keras():
    found = []
    trees = [*sources(), (ADAPTER.name, ast.parse(ADAPTER.read_text()))]
    for path, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{a.name}" for a in node.names]
            elif isinstance(node, ast.Constant):
                # A name for `importlib` or `sys.modules`, and no docstring.
                modules = str(node.value).split("\n") if node.value else []
            else:
                continue
            found += [f"{path}: {m}" for m in modules if is_of_src(m)]
    assert not found


def is_of_src(module):
    return module == "keras.src" or module.startswith("keras.src.")


def subclasses_of_keras():
    """Returns the classes of the package that derive from one of Keras."""
    found = set()
    for module in pkgutil.walk_packages([str(PACKAGE)], "keras_bdl."):
        for cls in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(cls) and cls.__module__ == module.name:
                if any(is_of_keras(base) for base in cls.__mro__):
                    found.add(cls)
    return found


def is_of_keras(cls):
    return cls.__module__.partition(".")[0] == "keras"


@functools.cache
def assigned_or_defined(cls):
    assigned = re.findall(
        r"\bself\.(_\w+)(?:: [^=\n]*)? = ", inspect.getsource(cls)
    )
    return {n for n in {*assigned, *vars(cls)} if is_private(n)}


def test_every_private_name_of_keras_that_a_class_overrides_is_listed():
    found = set()
    for cls in subclasses_of_keras():
        of_keras = set().union(
            *map(assigned_or_defined, filter(is_of_keras, cls.__mro__))
        )
        for base in cls.__mro__:  # mixins of ours need not derive from Keras
            if base.__module__.partition(".")[0] == "keras_bdl":
                names = assigned_or_defined(base) & of_keras
                found |= {f"{base.__name__}.{name}" for name in names}
    unlisted = {n for n in found if n.split(".")[1] not in _keras.OVERRIDDEN}
    assert not unlisted, (
        f"Rename these, or list them in {ADAPTER.name}: {unlisted}"
    )
    assert "BayesianTrainer._symbolic_build" in found
    assert "Variational._losses" in found
