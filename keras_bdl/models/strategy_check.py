"""Checks that a model can be trained under its distribution strategy."""

import tensorflow as tf

from keras_bdl.distribute.keras_fixes import given_seed
from keras_bdl.distribute.keras_fixes import in_several_workers
from keras_bdl.distribute.keras_fixes import mend_keras
from keras_bdl.distribute.workers import numbers_of_workers
from keras_bdl.likelihoods.loss_check import check_reductions
from keras_bdl.loss_scaling import inner_optimizer

_KNOWN = (
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
    tf.distribute.OneDeviceStrategy,
    tf.distribute.TPUStrategy,
)


def check_scope(model):
    """Raises an error if a model was made under another strategy.

    Args:
        model: A model that is about to be compiled.
    """
    # Not `distribute_strategy`, which is the current one where there is none.
    strategy, current = model._distribute_strategy, tf.distribute.get_strategy()
    if tf.distribute.has_strategy() and current is not strategy:
        raise ValueError(
            "A model must be made under the `strategy.scope()` in which it is "
            f"compiled. Received: model={model.name!r}, made under "
            f"{_name(strategy)}, compiled under {_name(current)}"
        )


def check_strategy(model, objective, sample_replicas):
    """Raises an error that names what the strategy cannot do.

    What it can do, Keras is made ready for.

    Args:
        model: A model that was just compiled.
        objective: See `keras_bdl.models.BayesianTrainer.compile`.
        sample_replicas: As above.
    """
    strategy = model.distribute_strategy
    if model._distribute_strategy and not isinstance(strategy, _KNOWN):
        raise ValueError(
            "`keras_bdl` trains under strategies whose replicas go in step: "
            f"{', '.join(known.__name__ for known in _KNOWN)}. "
            f"Received: strategy={type(strategy).__name__}"
        )
    _check_optimizer(model, strategy)
    _check_copies(strategy.num_replicas_in_sync, sample_replicas)
    if strategy.num_replicas_in_sync == 1:
        return
    check_reductions("replicas", model.loss)
    own = getattr(objective, "trainable_variables", [])
    _check_variables([*model.variables, *own], strategy)
    if in_several_workers(strategy):
        mend_keras()
    if not isinstance(strategy, tf.distribute.TPUStrategy):
        _check_compilation(model, strategy)
        _check_branches(model, strategy)


def check_seeds(model, fit_arguments):
    """Raises an error where workers would shuffle data in ways of their own.

    Each takes its part of the shuffled data, and all parts must make up one
    epoch.

    Args:
        model: A model that is about to be trained.
        fit_arguments: All arguments of `fit`, by name.
    """
    strategy = model.distribute_strategy
    is_data_set = isinstance(fit_arguments["x"], tf.data.Dataset)
    if (
        not in_several_workers(strategy)
        or is_data_set
        or not fit_arguments["shuffle"]
    ):
        return
    seed = given_seed()
    found = numbers_of_workers(strategy, [-1 if seed is None else seed])
    seeds = [None if s == -1 else s for (s,) in found]
    if None in seeds or len(set(seeds)) > 1:
        raise ValueError(
            "All workers must shuffle the data in the same way: begin the "
            "program with `keras.utils.set_random_seed`, the same on all, or "
            f"give `shuffle=False`. Received: seeds of the workers {seeds}"
        )


def _check_optimizer(model, strategy):
    optimizer = inner_optimizer(model)
    made_under = getattr(optimizer, "_distribution_strategy", strategy)
    if strategy.num_replicas_in_sync > 1 and made_under is not strategy:
        raise ValueError(
            "`optimizer` must be made under the same `strategy.scope()` as "
            f"the model. Received: optimizer={type(optimizer).__name__}, made "
            f"under {_name(made_under)}, for a model under {_name(strategy)}"
        )


def _check_variables(variables, strategy):
    alone = [
        v.path
        for v in variables
        if not isinstance(v.value, tf.distribute.DistributedValues)
    ]
    if alone:
        raise ValueError(
            "Every layer must be made under the `strategy.scope()` of the "
            "model, and every objective be new, or replicas share their "
            f"variables. Received: {alone[:3]}, made under no strategy, for a "
            f"model under {_name(strategy)}"
        )


def _check_branches(model, strategy):
    """Refuses optimizers whose replicas would meet in a branch of a graph."""
    optimizer = inner_optimizer(model)
    names = "gradient_accumulation_steps", "ema_overwrite_frequency"
    given = {n: getattr(optimizer, n, None) for n in names}
    if not getattr(optimizer, "use_ema", False):
        del given["ema_overwrite_frequency"]
    given = {name: steps for name, steps in given.items() if steps}
    if given:
        raise ValueError(
            "`optimizer` must do the same in every step under a "
            f"`{type(strategy).__name__}`, which has no branches: leave these "
            "options out. For larger batches, make `batch_size` larger. "
            f"Received: {given}"
        )


def _check_copies(replicas, copies):
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
        raise ValueError(
            "`sample_replicas` must be an integer of at least 1. "
            f"Received: sample_replicas={copies!r}"
        )
    if replicas % copies:
        raise ValueError(
            "`sample_replicas` must divide the number of replicas: every "
            "example is seen by that many of them. Make the model under the "
            "`scope()` of a strategy with enough of them. Received: "
            f"sample_replicas={copies}, with {replicas} replicas"
        )


def _check_compilation(model, strategy):
    """Refuses what ends in errors of TensorFlow that name no argument."""
    devices = strategy.extended.worker_devices
    on_cpus = any("device:CPU" in device for device in devices)
    if model.jit_compile and (on_cpus or len(devices) > 1):
        raise ValueError(
            '`jit_compile` must be `False` or "auto" here: XLA compiles '
            "a step for one device of a process, and on CPUs no collective "
            "operations. "
            f"Received: jit_compile=True, devices={list(devices)}"
        )
    if model.steps_per_execution > 1 and on_cpus:
        raise ValueError(
            "`steps_per_execution` must be 1 under a strategy on CPUs, whose "
            "data cannot be read in a loop of the graph. Received: "
            f"steps_per_execution={model.steps_per_execution}, "
            f"devices={list(devices)}"
        )


def _name(strategy):
    if isinstance(strategy, tf.distribute.Strategy):
        replicas = strategy.num_replicas_in_sync
        if replicas > 1:
            return f"{type(strategy).__name__} of {replicas} replicas"
    return "no strategy"
