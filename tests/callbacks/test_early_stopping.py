import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.callbacks import EarlyStopping
from keras_bdl.objectives import TaylorVI
from tests.optimizers.variational import X
from tests.optimizers.variational import Y
from tests.optimizers.variational import softmax_regression

METHODS = {
    "vogn": lambda: {"optimizer": bdl.VOGN()},
    "ivon": lambda: {"optimizer": bdl.IVON()},
    "noisy_kfac": lambda: {"optimizer": bdl.NoisyKFAC()},
    "taylor_vi": lambda: {
        "optimizer": "adam",
        "objective": TaylorVI("diagonal"),
    },
}
BEST = 1


class Script(keras.callbacks.Callback):
    """Logs a loss that is least in epoch `BEST`. Records the state."""

    def __init__(self):
        super().__init__()
        self.states = []

    def on_epoch_end(self, epoch, logs=None):
        logs["score"] = abs(epoch - BEST)
        self.states.append(state_of(self.model))


def state_of(model):
    method = model.objective or model.optimizer
    posterior = method.posterior(model).get_state()
    variables = [*model.weights, *model.optimizer.variables]
    return [posterior, [v.numpy() for v in variables]]


def stopping(**kwargs):
    return EarlyStopping(
        "score", patience=2, mode="min", restore_best_weights=True, **kwargs
    )


def fit(model, *callbacks):
    model.fit(X, Y, 4, epochs=9, verbose=0, callbacks=list(callbacks))
    return model


def assert_same_state(ours, theirs):
    for a, b in zip(
        keras.tree.flatten(ours), keras.tree.flatten(theirs), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("method", METHODS)
def test_posterior_and_optimizer_are_restored_from_the_best_epoch(method):
    script = Script()
    model = fit(softmax_regression(**METHODS[method]()), script, stopping())
    assert len(script.states) == BEST + 3
    assert_same_state(state_of(model), script.states[BEST])


@pytest.mark.parametrize("method", METHODS)
def test_callbacks_that_change_only_the_weights_raise_an_error(method):
    model = softmax_regression(**METHODS[method]())
    of_keras = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    with pytest.raises(ValueError, match="keras_bdl.callbacks.EarlyStopping"):
        fit(model, of_keras)
    with pytest.raises(ValueError, match="changes only the weights"):
        fit(model, bdl.SWA(start_epoch=0, replace_weights=True))


def test_early_stopping_of_keras_is_allowed_for_a_plain_optimizer():
    model = softmax_regression("sgd")
    of_keras = keras.callbacks.EarlyStopping(
        "score", patience=2, mode="min", restore_best_weights=True
    )
    script = Script()
    script.on_epoch_end = lambda epoch, logs: logs.update(score=epoch)
    fit(model, script, of_keras)
    assert of_keras.stopped_epoch == 2


def test_killed_run_stops_in_the_same_epoch_with_the_same_posterior(tmp_path):
    class Killed(Exception):
        pass

    def kill(epoch, logs):
        if epoch == BEST + 1:
            raise Killed

    whole = fit(softmax_regression(bdl.VOGN(seed=0)), Script(), stopping())

    def run(*last):
        checkpoint = bdl.callbacks.Checkpoint(tmp_path / "run")
        model = softmax_regression(bdl.VOGN(seed=0))
        return fit(model, Script(), stopping(), checkpoint, *last)

    with pytest.raises(Killed):
        run(keras.callbacks.LambdaCallback(on_epoch_begin=kill))
    assert_same_state(state_of(run()), state_of(whole))
