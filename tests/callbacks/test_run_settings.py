import random

import keras
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.objectives import MAP
from tests.callbacks.test_checkpoint import X
from tests.callbacks.test_checkpoint import Y
from tests.callbacks.test_checkpoint import make
from tests.callbacks.test_checkpoint import run
from tests.helpers import assert_equal


def test_other_batches_within_an_epoch_raise_an_error(tmp_path):
    run(tmp_path, (2, 4), steps=3)
    with pytest.raises(ValueError, match="steps of an epoch 1, where.* 6$"):
        run(tmp_path, fit={"batch_size": 60})
    model = make(compile={"steps_per_execution": 4})
    with pytest.raises(ValueError, match="steps_per_execution 4, where.* 1$"):
        run(tmp_path, model=model)
    # Data of unknown length reveal their end only in training.
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(30)
    data = data.filter(lambda *_: True)
    with (
        pytest.warns(UserWarning, match="ran out of data"),
        pytest.raises(ValueError, match="Epoch 2 ended before step 3"),
    ):
        run(tmp_path, x=data)


def test_other_batches_are_allowed_from_the_next_epoch_on(tmp_path):
    run(tmp_path, (2, 4))
    model = run(tmp_path, fit={"batch_size": 60}).model
    assert model.optimizer.iterations.numpy() == 2 * 6 + 3


def test_another_optimizer_with_the_same_variables_raises_an_error(tmp_path):
    run(tmp_path)
    other = make()
    other.compile(keras.optimizers.AdamW(1e-3), "mse")
    with pytest.raises(ValueError, match="'AdamW', where.*'Adam'"):
        run(tmp_path, model=other)


def compiled(optimizer, loss="mse", **kwargs):
    model = make()
    model.compile(optimizer, loss, metrics=["mae"], **kwargs)
    return model


def test_learning_rate_of_the_checkpoint_is_used_with_a_warning(tmp_path):
    run(tmp_path, (2, 0), model=compiled(keras.optimizers.Adam(0.01)))
    with pytest.warns(
        UserWarning,
        match="uses the learning rate of the checkpoint.*'0.02'.*'0.01'",
    ):
        found = compiled(keras.optimizers.Adam(0.02))
        model = run(tmp_path, model=found).model
    assert float(model.optimizer.learning_rate) == pytest.approx(0.01)


def test_learning_rate_changed_by_a_callback_causes_no_warning(
    tmp_path,
):
    def halved():
        return {
            "fit": {"epochs": 4},
            "model": compiled(keras.optimizers.Adam(0.01)),
            "callbacks": [
                keras.callbacks.ReduceLROnPlateau("loss", 0.5, 1, min_delta=9)
            ],
        }

    run(tmp_path, (3, 0), **halved())
    model = run(tmp_path, **halved()).model  # a warning would raise
    assert float(model.optimizer.learning_rate) < 0.01


def linear(start):
    return bdl.schedules.LinearRamp(start, 1.0, end_step=9)


SETTINGS = {
    "loss": lambda other: {
        "optimizer": "sgd",
        "loss": keras.losses.MeanSquaredError() if other else "mae",
    },
    "momentum of the optimizer": lambda other: {
        "optimizer": keras.optimizers.SGD(0.01, 0.5 if other else 0.9)
    },
    "learning_rate of the optimizer": lambda other: {
        "optimizer": keras.optimizers.SGD(linear(0.5 if other else 0.0))
    },
    "temperature of the optimizer": lambda other: {
        "optimizer": bdl.SGLD(1e-3, 60, temperature=linear(0.5 * other))
    },
    "prior of the objective": lambda other: {
        "optimizer": "sgd",
        "objective": MAP(bdl.priors.Normal(2.0 if other else 1.0)),
    },
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_other_settings_raise_an_error(setting, tmp_path):
    fit = {"epochs": 1}
    run(tmp_path, model=compiled(**SETTINGS[setting](False)), fit=fit)
    with pytest.raises(ValueError, match=f"Received: {setting} "):
        run(tmp_path, model=compiled(**SETTINGS[setting](True)))
    with pytest.warns(UserWarning, match="is complete"):  # the same again
        run(tmp_path, model=compiled(**SETTINGS[setting](False)), fit=fit)


def drawing(method, process, seed=None):
    """Returns a model of a process that draws its own seeds."""
    keras.utils.set_random_seed(7)
    model = bdl.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    random.seed(process)
    if method == "optimizer":
        model.compile(bdl.VOGN(1e-3, seed=seed), "mse")
        return model, model.optimizer
    hessian = bdl.objectives.Hutchinson(seed=seed)
    objective = bdl.objectives.TaylorVI("scalar", hessian_diagonal=hessian)
    model.compile("sgd", "mse", objective=objective)
    return model, hessian


@pytest.mark.parametrize(
    ("method", "trained"), [("optimizer", True), ("objective", False)]
)
def test_drawn_seed_of_the_checkpoint_is_used(method, trained, tmp_path):
    def fit(model, folder, epochs, *others):
        checkpoint = bdl.callbacks.Checkpoint(tmp_path / folder)
        keras.utils.set_random_seed(7)  # arrays are shuffled in one way
        callbacks = [*others, checkpoint]
        model.fit(X, Y, epochs=epochs, verbose=0, callbacks=callbacks)
        return model.get_weights()

    whole, owner = drawing(method, 1)
    weights = fit(whole, "whole", 3)
    fit(drawing(method, 1)[0], "killed", 1)
    resumed, other = drawing(method, 2)
    assert other.seed != owner.seed
    if trained:  # the step is traced, with the seed of this process
        resumed.fit(X, Y, verbose=0)
    assert_equal(fit(resumed, "killed", 3), weights)
    assert other.seed == owner.seed


def test_given_seed_must_be_that_of_the_checkpoint(tmp_path):
    model, owner = drawing("optimizer", 1)
    run = bdl.callbacks.Checkpoint(tmp_path)
    model.fit(X, Y, verbose=0, callbacks=[run])
    given, _ = drawing("optimizer", 2, seed=5)
    with pytest.raises(ValueError, match="seed of the optimizer '5'"):
        given.fit(X, Y, epochs=2, verbose=0, callbacks=[run])
    # The error about another setting leaves the drawn seed as it was.
    drawn, other = drawing("optimizer", 2)
    before, drawn.optimizer.temperature = other.seed, 0.5
    with pytest.raises(ValueError, match="temperature of the optimizer '0.5'"):
        drawn.fit(X, Y, epochs=2, verbose=0, callbacks=[run])
    assert drawn.optimizer.seed == before != owner.seed
