"""The private names of Keras and TensorFlow, one function for each.

No other file of the package reads a private name of Keras, or a module below
`keras.src`. `tests/test_keras_private_names.py` checks that every name exists,
so a new release of Keras fails there first, with one message.

"Waits for:", in a docstring, names the public API that Keras would need to
replace the function. The functions reach modules of Keras through public
objects that the modules define, so this file imports nothing from `keras.src`.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras

# Private names that our own classes define because Keras calls or reads them.
# The definitions are in the files of the classes; the values here say why.
OVERRIDDEN = {
    "_direction": "`EarlyStopping` of Keras reads which way a metric improves",
    "_dropout_mask": "a stand-in for a recurrent cell holds masks of a thread",
    "_loss_ids": "the ids of `_losses`, see there",
    "_losses": "replicas are threads, and Keras has one list for all of them",
    "_make_function": "a step is watched, also the `train_step` of a subclass",
    "_maybe_symbolic_build": "Keras averages the first batch over replicas",
    "_recurrent_dropout_mask": "as `_dropout_mask`",
    "_symbolic_build": "Keras builds the optimizer without the objective",
}


# Layers


def all_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns a layer and all layers inside it, at all levels.

    `Model.layers` returns only the first level.
    """
    return layer._flatten_layers()


def inner_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the layers inside a layer, at all levels."""
    return all_layers(layer)[1:]


def own_variables(layer: keras.layers.Layer) -> tuple[list, list]:
    """Returns variables that were made as trainable ones, and all others.

    Both lists are without variables of inner layers. `trainable_variables`
    leaves out those that were frozen later.
    """
    return layer._trainable_variables, layer._non_trainable_variables


def tracked_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the direct inner layers; `layers` exists only in models."""
    return layer._layers


# Attributes in which Keras keeps its bookkeeping of a layer.
BOOKKEEPING = ("_layers", "_tracker")


def replace_tracked_layer(
    layer: keras.layers.Layer, index: int, new: keras.layers.Layer
) -> None:
    """Replaces an inner layer of a built layer, which refuses assignment."""
    layer._tracker.replace_tracked_value("layers", layer._layers[index], new)


@contextlib.contextmanager
def unlocked(layer: keras.layers.Layer) -> Iterator[None]:
    """Lets a built layer get more variables inside a block."""
    locked = layer._tracker.locked
    layer._tracker.unlock()
    try:
        yield
    finally:
        if locked:
            layer._tracker.lock()


def sort_non_trainable(layer: keras.layers.Layer, key: Callable) -> None:
    """Sorts non-trainable variables in place; the public list is a copy."""
    layer._non_trainable_variables.sort(key=key)


def stored_kernel(layer: keras.layers.Layer) -> keras.Variable:
    """Returns the variable that `kernel` or `embeddings` of a layer reads."""
    is_table = isinstance(layer, keras.layers.Embedding)
    return layer._embeddings if is_table else layer._kernel


def call_with_training(
    model: keras.layers.Layer, x: Any, training: bool
) -> Any:
    """Returns the outputs, even if `call` has no argument `training`."""
    if model._call_has_training_arg:
        return model(x, training=training)
    return model(x)


def mask_of(tensor: Any) -> Any:
    """Returns the mask that layers have passed on to a tensor, or `None`."""
    return getattr(tensor, "_keras_mask", None)


def set_mask(tensor: Any, mask: Any) -> None:
    """Passes a mask on to a tensor, as the layers of Keras do."""
    tensor._keras_mask = mask


def pass_training(layer: keras.layers.Layer) -> None:
    """Makes the steps of Keras pass `training` to the `call` of a layer."""
    layer._call_has_training_arg = True


def autocast(layer: keras.layers.Layer) -> Any:
    """Returns a scope in which variables have the compute dtype of a layer.

    `layer.__call__` opens this scope. `layer.call` needs it.
    """
    module = sys.modules[keras.layers.Layer.__module__].backend
    return module.AutocastScope(layer.compute_dtype)


def clear_losses(layer: keras.layers.Layer) -> None:
    """Removes the losses that a trace has left in a layer."""
    layer._clear_losses()


def entry_layer(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Returns the outermost layer or model of the current call."""
    outer = layer._get_call_context().entry_layer
    if outer is layer:
        # If no call was running, the line above has started one.
        layer._maybe_reset_call_context()
    return outer


def unpickler(cls: Any) -> Callable:
    """Returns the function that a pickle stores to load a layer."""
    return cls._unpickle_model


def operations_before(tensor: keras.KerasTensor) -> Iterator[Any]:
    """Yields the operations that a symbolic output comes from, last first.

    Waits for: a public way from a symbolic tensor to its operation.
    """
    waiting, seen = [tensor], set()
    while waiting:
        history = waiting.pop(0)._keras_history
        if history is None or id(history.operation) in seen:
            continue
        seen.add(id(history.operation))
        yield history.operation
        node = history.operation._inbound_nodes[history.node_index]
        waiting += node.input_tensors


# Models and their training


def compute_loss(model: keras.Model, *args: Any, **kwargs: Any) -> Any:
    """Returns the loss, even if `compute_loss` has no argument `training`."""
    return model._compute_loss(*args, **kwargs)


def compile_loss(model: keras.Model) -> Any:
    """Returns the object that `compile` makes from its losses, or `None`.

    `model.loss` is the argument that the user passed, for example a name.
    """
    return getattr(model, "_compile_loss", None)


def losses_of_outputs(compiled: Any) -> list:
    """Returns the list of losses in a result of `compile_loss`."""
    return compiled._flat_losses


def compile_metrics(model: keras.Model) -> Any:
    """Returns the object that `compile` makes from its metrics, or `None`.

    `model.metrics` does not show the output to which a metric belongs.
    """
    return getattr(model, "_compile_metrics", None)


def flat_outputs(compiled: Any, outputs: Any) -> list:
    """Returns outputs in the order of `metrics_of_outputs`."""
    return compiled._flatten_y(outputs)


def metrics_of_outputs(compiled: Any) -> tuple[list, list]:
    """Returns the metrics and the weighted metrics of each output."""
    return compiled._flat_metrics, compiled._flat_weighted_metrics


def metric_function(metric: keras.metrics.Metric) -> Any:
    """Returns the function that a metric wraps, or the metric."""
    return getattr(metric, "_fn", metric)


def metric_options(metric: keras.metrics.MeanMetricWrapper) -> dict:
    """Returns the arguments of `metric_function`; subclasses hide them."""
    return metric._fn_kwargs


def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """Returns the metric of the loss, which our training steps update."""
    return model._loss_tracker


def symbolic_build(model: keras.Model, data_batch: Any) -> None:
    """Builds a model, its metrics and its loss for a batch of data."""
    model._symbolic_build(data_batch=data_batch)


def source_dataset(epoch_iterator: Any) -> Any:
    """Returns the `tf.data.Dataset` behind the iterator of an epoch."""
    return epoch_iterator._distributed_dataset


def set_initial_epoch(model: keras.Model, epoch: int | None) -> None:
    """Sets the first epoch from a callback, as `BackupAndRestore` does.

    The public way is an argument of `fit`, which a callback cannot set.
    """
    model._initial_epoch = epoch


def strategy_of_model(model: keras.Model) -> Any:
    """Returns the strategy of a model's scope; `None` is the current one."""
    return model._distribute_strategy


def wrap_reduction_of_logs(wrap: Callable) -> None:
    """Replaces the function, not a method, that averages logs of replicas."""
    module = sys.modules[_trainer_class().__module__]
    _wrap(module, "reduce_per_replica", wrap)


def wrap_build_before_fit(wrap: Callable) -> None:
    """Replaces the method by which `fit` builds models, for all models."""
    _wrap(_trainer_class(), "_maybe_symbolic_build", wrap)


def wrap_clone_functions(wrap: Callable) -> None:
    """Replaces the functions that choose the class in `clone_model`.

    Waits for: a public argument of `clone_model` for the class of the copy.
    """
    module = sys.modules[keras.models.clone_model.__module__]
    _wrap(module, "_clone_sequential_model", wrap)
    _wrap(module, "_clone_functional_model", wrap)


def _trainer_class() -> type:
    name = "_maybe_symbolic_build"
    return next(cls for cls in keras.Model.__mro__ if name in vars(cls))


def _wrap(owner: Any, name: str, wrap: Callable) -> None:
    original = getattr(owner, name)
    if not hasattr(original, "replaced_by_keras_bdl"):
        replacement = functools.wraps(original)(wrap(original))
        vars(replacement)["replaced_by_keras_bdl"] = True
        setattr(owner, name, replacement)


def model_of_step() -> tuple[keras.Model | None, Any]:
    """Returns the model whose step calls this function, and its outputs.

    Both are `None` in a training loop of the user.

    Keras gives a plain optimizer or regularizer no reference to the model.

    Waits for: a method of optimizers that gets the model from `compile`.
    """
    frame = inspect.currentframe()
    model = None
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, keras.Model) and compile_loss(owner) is not None:
            model = owner if model is None else model
            if owner is model and frame.f_locals.get("y_pred") is not None:
                return model, frame.f_locals["y_pred"]
        frame = frame.f_back
    return model, None


# Optimizers


def inner_optimizer(model: keras.Model) -> keras.optimizers.Optimizer | None:
    """Returns a model's optimizer without loss scaling, or `None`."""
    return without_loss_scaling(getattr(model, "optimizer", None))


def without_loss_scaling(
    optimizer: keras.optimizers.Optimizer | None,
) -> keras.optimizers.Optimizer | None:
    """Returns an optimizer without the `LossScaleOptimizer` around it."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def loss_scale(optimizer: keras.optimizers.Optimizer) -> Any:
    """Returns the number by which an optimizer divides gradients, or `None`."""
    one = keras.ops.ones(())
    scaled = optimizer.scale_loss(one)
    return None if scaled is one else keras.ops.convert_to_tensor(scaled)


def batches_of_step(model: keras.Model) -> int:
    """Returns the number of batches that the optimizer takes for one step."""
    optimizer = inner_optimizer(model)
    # Natural gradients accumulate more than gradients, and do it themselves.
    for name in ("accumulated_batches", "gradient_accumulation_steps"):
        if steps := getattr(optimizer, name, None):
            return steps
    return 1


def variable_index(optimizer: keras.Optimizer, variable: keras.Variable) -> int:
    """Returns the index of a variable in all lists of its optimizer."""
    return optimizer._get_variable_index(variable)


def optimized_variables(optimizer: keras.Optimizer) -> list[keras.Variable]:
    """Returns the variables that an optimizer trains, not its own state."""
    return optimizer._trainable_variables


def clip_gradients(optimizer: keras.Optimizer, gradients: list) -> list:
    """Returns gradients as an optimizer clips them, without a step."""
    return optimizer._clip_gradients(gradients)


def strategy_of_optimizer(
    optimizer: keras.Optimizer, default: Any = None
) -> Any:
    """Returns the strategy whose scope an optimizer was made in."""
    return getattr(optimizer, "_distribution_strategy", default)


# The state of the program


def global_seed_generator() -> keras.random.SeedGenerator:
    """Returns the seed generator of random ops without a seed, to save it."""
    module = sys.modules[keras.random.SeedGenerator.__module__]
    return module.global_seed_generator()


def drawn_seed() -> int:
    """Returns a new seed, as a `SeedGenerator` without a seed draws it.

    `keras.utils.set_random_seed` determines the sequence of drawn seeds.
    Waits for: a public function. `SeedGenerator` would also make a variable.
    """
    module = sys.modules[keras.random.SeedGenerator.__module__]
    return module.make_default_seed()


def given_seed() -> int | None:
    """Returns the argument of `keras.utils.set_random_seed`, or `None`."""
    module = sys.modules[keras.utils.set_random_seed.__module__]
    return module.get_random_seed()


# Pipelines of `tf.data`


def inputs_of_step(dataset: Any) -> list:
    """Returns the data sets that the last step of a pipeline reads.

    Waits for: a public way to see the steps of a `tf.data.Dataset`.
    """
    return dataset._inputs()


def count_of_step(dataset: Any) -> int:
    """Returns the argument of `repeat`, `take` or `skip`; -1 for all."""
    return int(dataset._count)


def batch_size_of_step(dataset: Any) -> int:
    """Returns the argument `batch_size` of `batch` or `padded_batch`."""
    return int(dataset._batch_size)


def drops_remainder(dataset: Any) -> bool:
    """Returns whether a step that makes batches leaves out a small rest."""
    return bool(dataset._drop_remainder)


def dataset_of_iterator(iterator: Any) -> Any:
    """Returns the dataset behind the iterator of a training step, or `None`.

    With a strategy, it is the dataset of the first worker.
    Waits for: an argument of callbacks with the data of `fit`.
    """
    first = getattr(iterator, "_iterators", [iterator])[0]
    return getattr(first, "_dataset", None)


def shuffle_of_dataset(dataset: Any) -> tuple[bool, bool] | None:
    """Returns facts about a dataset that `shuffle` has returned, or `None`.

    The facts are whether each pass has another order, and whether a seed
    determines the orders.
    """
    again = getattr(dataset, "_reshuffle_each_iteration", None)
    if again is None:
        return None
    return bool(again), bool(dataset._seed != 0 or dataset._seed2 != 0)


def file_of_cache(dataset: Any) -> str | None:
    """Returns the file of a dataset that `cache` has returned, or `None`.

    A cache in memory has the file `""`.
    """
    if type(dataset).__name__ != "CacheDataset":
        return None
    return dataset._filename.numpy().decode()


# Strategies of TensorFlow


def in_several_processes(strategy: Any) -> bool:
    """Returns whether a multi-worker strategy has more than one worker."""
    return strategy.extended._in_multi_worker_mode()


def first_replica_id(strategy: Any) -> int:
    """Returns the index of this process's first replica, outside of a step."""
    return strategy.extended._get_replica_id_in_sync_group(0)
