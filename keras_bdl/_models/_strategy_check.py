"""Check that a model can be trained under its distribution strategy.

The functions only check. `keras_bdl.distribute.mend_keras` repairs Keras.
"""

from typing import Any

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl._keras import inner_optimizer
from keras_bdl.distribute._replicas import on_cpus
from keras_bdl.distribute._workers import numbers_of_workers
from keras_bdl.likelihoods._loss_as_likelihood import check_reductions

_KNOWN = (
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
    tf.distribute.OneDeviceStrategy,
    tf.distribute.TPUStrategy,
)


def check_scope(model: keras.Model) -> None:
    """Raises an error if a model was made under another strategy."""
    strategy = _keras.strategy_of_model(model)
    current = tf.distribute.get_strategy()
    if tf.distribute.has_strategy() and current is not strategy:
        raise ValueError(
            "A model must be made under the `strategy.scope()` in which it is "
            f"compiled. Received: model={model.name!r}, made under "
            f"{_name(strategy)}, compiled under {_name(current)}"
        )


def check_strategy(
    model: keras.Model, objective: Any, sample_replicas: int
) -> None:
    """Raises an error if a compiled model cannot train under its strategy."""
    strategy = model.distribute_strategy
    if _keras.strategy_of_model(model) and not isinstance(strategy, _KNOWN):
        raise ValueError(
            "The strategy of a model must keep its replicas in step. Use one "
            f"of {', '.join(known.__name__ for known in _KNOWN)}. "
            f"Received: strategy={type(strategy).__name__}"
        )
    _check_optimizer(model, strategy)
    _check_copies(strategy.num_replicas_in_sync, sample_replicas)
    if strategy.num_replicas_in_sync == 1:
        return
    check_reductions("replicas", model.loss)
    own = getattr(objective, "trainable_variables", [])
    _check_variables([*model.variables, *own], strategy)
    if not isinstance(strategy, tf.distribute.TPUStrategy):
        _check_compilation(model, strategy)
        _check_branches(model, strategy)


def check_seeds(model: keras.Model, fit_arguments: dict[str, Any]) -> None:
    """Raises an error if workers would shuffle the data differently.

    Each worker takes a part of the shuffled data. The parts make up one epoch
    only if all workers shuffle in the same way.
    """
    strategy = model.distribute_strategy
    is_data_set = isinstance(fit_arguments["x"], tf.data.Dataset)
    if is_data_set or not fit_arguments["shuffle"]:
        return
    seed = _keras.given_seed()
    found = numbers_of_workers(strategy, [-1 if seed is None else seed])
    seeds = [None if s == -1 else s for (s,) in found]
    if None in seeds or len(set(seeds)) > 1:
        raise ValueError(
            "All workers must shuffle the data in the same way. Begin the "
            "program with the same `keras.utils.set_random_seed` on all "
            "workers, or pass `shuffle=False`. "
            f"Received: seeds of the workers {seeds}"
        )


def _check_optimizer(model: Any, strategy: Any) -> None:
    optimizer = inner_optimizer(model)
    made_under = _keras.strategy_of_optimizer(optimizer, strategy)
    if strategy.num_replicas_in_sync > 1 and made_under is not strategy:
        raise ValueError(
            "`optimizer` must be made under the same `strategy.scope()` as "
            f"the model. Received: optimizer={type(optimizer).__name__}, made "
            f"under {_name(made_under)}, for a model under {_name(strategy)}"
        )


def _check_variables(variables: list, strategy: Any) -> None:
    alone = [
        v.path
        for v in variables
        if not isinstance(v.value, tf.distribute.DistributedValues)
    ]
    if alone:
        raise ValueError(
            "Every variable must be made under the `strategy.scope()` of the "
            "model. Make all layers under this scope, and a new objective. "
            f"Received: {alone[:3]}, made under no strategy, for a model under "
            f"{_name(strategy)}"
        )


def _check_branches(model: Any, strategy: Any) -> None:
    """Raises an error if a branch of the graph would synchronize replicas."""
    optimizer = inner_optimizer(model)
    names = "gradient_accumulation_steps", "ema_overwrite_frequency"
    given = {n: getattr(optimizer, n, None) for n in names}
    # Natural gradients keep sums of their own.
    if steps := getattr(optimizer, "accumulated_batches", None):
        given[names[0]] = steps
    if not getattr(optimizer, "use_ema", False):
        del given["ema_overwrite_frequency"]
    given = {name: steps for name, steps in given.items() if steps}
    if given:
        raise ValueError(
            "`optimizer` must do the same in every step under a "
            f"`{type(strategy).__name__}`. Leave these options out. For larger "
            f"batches, make `batch_size` larger. Received: {given}"
        )


def _check_copies(replicas: int, copies: int) -> None:
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
        raise ValueError(
            "`sample_replicas` must be an integer of at least 1. "
            f"Received: sample_replicas={copies!r}"
        )
    if replicas % copies:
        raise ValueError(
            "`sample_replicas` must divide the number of replicas: every "
            "example goes to that many replicas. Make the model under the "
            "`scope()` of a strategy with enough replicas. Received: "
            f"sample_replicas={copies}, with {replicas} replicas"
        )


def _check_compilation(model: Any, strategy: Any) -> None:
    """Raises an error that names the argument, unlike that of TensorFlow."""
    devices = strategy.extended.worker_devices
    if model.jit_compile and (on_cpus(strategy) or len(devices) > 1):
        raise ValueError(
            '`jit_compile` must be `False` or "auto" under this strategy. '
            "XLA compiles a step for one device of a process, and no "
            "collective operations on CPUs. "
            f"Received: jit_compile=True, devices={list(devices)}"
        )


def _name(strategy: Any) -> str:
    if isinstance(strategy, tf.distribute.Strategy):
        replicas = strategy.num_replicas_in_sync
        if replicas > 1:
            return f"{type(strategy).__name__} of {replicas} replicas"
    return "no strategy"
