"""Optimizers that clip or check gradients on each replica."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.distribute._replicas import variable_copies
from tests.distribute.cases import METHODS
from tests.distribute.cases import OBJECTIVES
from tests.distribute.cases import compiled
from tests.distribute.cases import data
from tests.distribute.cases import fitted
from tests.distribute.cases import state

ONE = tf.distribute.get_strategy()


def clipped(scale=None, **clip):
    optimizer = keras.optimizers.SGD(0.3, **clip)
    if scale is None:
        return optimizer
    return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=scale)


@pytest.mark.parametrize(
    ("optimizer", "objective"),
    [
        (lambda: bdl.KFAC(1e-2, update_every=2, curvature_every=1), None),
        (lambda: clipped(global_clipnorm=0.05), None),
        (lambda: clipped(scale=64.0, clipnorm=0.03), None),
        (lambda: clipped(clipvalue=0.01), bdl.objectives.MAP),
    ],
    ids=["KFAC", "global_clipnorm", "scaled clipnorm", "clipvalue"],
)
def test_weighted_examples_and_clipping_equal_one_device(
    optimizer, objective, mirrored
):
    weights = []
    for strategy in (ONE, mirrored):
        made = None if objective is None else objective()
        model = compiled(strategy, optimizer, objective=made)
        fitted(model, class_weight={0: 3.0, 1: 0.2})
        weights.append(state(model)["weights"])
    for ours, theirs in zip(*weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ("SGD", "OGN", "MAP"))
def test_a_step_that_overflows_on_one_replica_is_skipped_on_all(name, mirrored):
    def scaled():
        inner = METHODS.get(name, METHODS["SGD"])()
        return keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0)

    objective = OBJECTIVES[name]() if name in OBJECTIVES else None
    model = compiled(mirrored, scaled, objective=objective)
    before = [v.numpy() for v in model.trainable_variables]
    for infinite, scale in ((0, 4.0), (15, 2.0)):  # on the other replica
        x, y = data(16)
        x[infinite] = np.inf
        model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
        assert model.optimizer.dynamic_scale.numpy() == scale
        for variable, value in zip(
            model.trainable_variables, before, strict=True
        ):
            for copy in variable_copies(variable):
                np.testing.assert_array_equal(copy.numpy(), value)


@pytest.mark.parametrize(
    ("options", "received"),
    [
        ({"gradient_accumulation_steps": 2}, "'gradient_accumulation_steps'"),
        (
            {"use_ema": True, "ema_overwrite_frequency": 5},
            "'ema_overwrite_frequency': 5",
        ),
    ],
)
def test_optimizers_that_branch_are_refused(options, received, mirrored):
    with pytest.raises(
        ValueError, match=f"must do the same in every step.*{received}"
    ):
        compiled(mirrored, lambda: keras.optimizers.SGD(0.1, **options))


@pytest.mark.parametrize("reduction", ("sum", "mean_with_sample_weight"))
def test_losses_that_are_no_means_over_the_batch_are_refused(
    reduction, mirrored
):
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    with mirrored.scope():
        model = bdl.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        with pytest.raises(
            ValueError, match="mean over the batch for replicas"
        ):
            model.compile("sgd", loss)
