"""A run with every callback of the package, killed and resumed."""

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl import callbacks as cb
from keras_bdl import extend
from tests.helpers import cross_entropy

X = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
STEPS, EPOCHS = 4, 5


class Killed(Exception):
    pass


class Kill(keras.callbacks.Callback):
    """Ends the process after a step, or before the first step of an epoch."""

    def __init__(self, epoch, batch):
        super().__init__()
        self.at = (epoch, batch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        if self.at == (epoch, None):
            raise Killed

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise Killed


class MeanStep(extend.StatefulCallback):
    """A user's callback, with a sum that starts at zero in each epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append(int(self.model.optimizer.iterations.numpy()))

    def on_epoch_end(self, epoch, logs=None):
        logs["mean_step"] = np.mean(self.steps)

    def get_state(self):
        return {"steps": list(self.steps)}

    def set_state(self, state):
        self.steps = list(state["steps"])


@pytest.fixture(scope="module")
def run():
    """Returns a function that runs the command on a model traced once."""
    keras.utils.set_random_seed(1)
    model = bdl.Sequential(
        [
            keras.Input((3,)),
            bdl.layers.MeanFieldDense(4, activation="relu"),
            bdl.layers.MeanFieldDense(2),
        ]
    )
    sampler = bdl.SGHMC(1e-3, dataset_size=32, prior=bdl.priors.Normal(1.0))
    loss = cross_entropy()
    model.compile(sampler, loss)
    sampler.build(model.trainable_variables)
    variables = [*model.variables, *sampler.variables]
    start = [v.numpy() for v in variables]

    def run(directory, *kill):
        for variable, value in zip(variables, start, strict=True):
            variable.assign(value)
        keras.utils.set_random_seed(2)
        swag = bdl.SWAG(start_epoch=0, rank=2, every=3, unit="step")
        samples = cb.SampleCollector(3, unit="step", max_samples=4)
        noise = cb.GradientVariance((X[:8], Y[:8]), samples=2, every=2)
        stop = cb.EarlyStopping(
            "mean_step", mode="min", patience=EPOCHS - 2,
            restore_best_weights=True,
        )  # fmt: skip
        callbacks = [
            swag,
            samples,
            cb.ChainDiagnostics(verbose=0),
            cb.KLAnnealing(3),
            noise,
            MeanStep(),
            stop,
            cb.Checkpoint(directory, every=2, unit="step"),
            *kill,
        ]
        model.fit(X, Y, 32 // STEPS, 9, verbose=0, callbacks=callbacks)
        return {
            "variables": [v.numpy() for v in variables],
            "history": model.history.history,
            "swag": swag.posterior.get_state(),
            "samples": samples.posterior.get_state(),
            "noise": noise.get_state(),
        }

    return run


def test_killed_run_with_all_callbacks_ends_like_an_unkilled_run(run, tmp_path):
    whole = run(tmp_path / "whole")
    # In the first epoch the KL has no weight; the run ends with a stop.
    assert whole["history"]["mean_step"] == [2.5, 6.5, 10.5, 14.5]
    for kill in ((1, None), (2, 2)):
        with pytest.raises(Killed):
            run(tmp_path / "killed", Kill(*kill))
    resumed = run(tmp_path / "killed")
    for (path, a), (other, b) in zip(
        keras.tree.flatten_with_path(resumed),
        keras.tree.flatten_with_path(whole),
        strict=True,
    ):
        assert path == other
        np.testing.assert_array_equal(a, b, err_msg=str(path))
