import contextlib
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.data import DatasetSize
from keras_bdl.data.count_examples import count_examples

X = np.zeros((50, 3), "float32")


class NeedsN(keras.optimizers.SGD):
    """An optimizer whose step is N, to see what it was told."""

    def __init__(self, dataset_size=None, **kwargs):
        super().__init__(**kwargs)
        self.dataset_size = DatasetSize(dataset_size, "NeedsN")

    def update_step(self, gradient, variable, learning_rate):
        variable.assign(
            keras.ops.zeros_like(variable) + self.dataset_size.value()
        )


class Constant(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return X[:10], X[:10, :1]


def told(x, dataset_size=None, optimizer=None, **fit):
    """The N inside the traced step, read off a weight."""
    model = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer or NeedsN(dataset_size), "mse")
    y = X[:, :1] if isinstance(x, np.ndarray) else None
    model.fit(x, y, verbose=0, **fit)
    return float(model.trainable_variables[1][0])


def batched(size, drop_remainder=False):
    return tf.data.Dataset.from_tensor_slices((X, X[:, :1])).batch(
        size, drop_remainder=drop_remainder
    )


def test_arrays_are_counted_after_the_validation_split():
    assert told(X) == 50
    assert told(X, validation_split=0.3) == 35
    # Given validation data, Keras does not split.
    assert (
        told(X, validation_split=0.3, validation_data=(X[:9], X[:9, :1])) == 50
    )


def test_batched_tf_data_is_counted_within_one_batch():
    assert told(batched(16)) == 64
    assert told(batched(16, drop_remainder=True)) == 48
    assert told(batched(16).map(lambda x, y: (x, y)).prefetch(1)) == 64
    count = count_examples(batched(16))
    assert abs(count.examples - 50) <= count.tolerance == 15


def test_py_dataset_is_counted():
    assert told(Constant()) == 50


def test_endless_data_counts_batch_size_times_steps_and_warns_once():
    model = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(NeedsN(), "mse")
    data = batched(10).repeat()
    with pytest.warns(UserWarning, match="data of 30 examples per epoch"):
        model.fit(data, steps_per_epoch=3, verbose=0)
    model.fit(data, steps_per_epoch=4, verbose=0)  # a warning would raise
    assert float(model.trainable_variables[1][0]) == 40


def test_endless_data_is_not_counted_where_n_is_given():
    data = batched(10).repeat()
    assert told(data, 50, steps_per_epoch=3) == 50  # a warning would raise


def test_recount_reaches_a_traced_step_without_a_retrace():
    model = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(NeedsN(), "mse")
    model.fit(X[:32], X[:32, :1], verbose=0)
    step = model.train_function
    model.fit(X[:20], X[:20, :1], batch_size=20, verbose=0)
    assert float(model.trainable_variables[1][0]) == 20
    assert model.train_function is step
    # The count is no weight, and no number that the user gave.
    assert len(model.weights) == 2
    assert model.optimizer.dataset_size.given is None


def test_n_is_found_under_loss_scaling():
    inner = NeedsN()
    assert told(X, optimizer=keras.optimizers.LossScaleOptimizer(inner)) == 50


def test_generator_is_an_error_only_if_something_needs_n():
    def generator():
        while True:
            yield X[:10], X[:10, :1]

    with pytest.raises(ValueError, match=r"NeedsN\(..., dataset_size="):
        told(generator(), steps_per_epoch=1)
    assert told(generator(), dataset_size=7, steps_per_epoch=1) == 7
    plain = keras.optimizers.SGD(0.1)
    assert np.isfinite(told(generator(), optimizer=plain, steps_per_epoch=1))


def test_plain_keras_model_says_what_to_write():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(NeedsN(), "mse")
    with pytest.raises(ValueError, match=r"NeedsN\(..., dataset_size="):
        model.fit(X, X[:, :1], verbose=0)


def test_disagreement_with_the_count_is_a_warning():
    with pytest.warns(UserWarning, match="dataset_size=60, counted 50"):
        assert told(X, dataset_size=60) == 60
    assert told(batched(16), dataset_size=50) == 50  # within one batch


def test_n_reaches_layers_and_regularizers():
    class Regularizer(keras.regularizers.Regularizer):
        def __init__(self):
            self.dataset_size = DatasetSize(None, "Regularizer")

        def __call__(self, x):
            return 0.0 * keras.ops.sum(x) / self.dataset_size.value()

    class Layer(keras.layers.Dense):
        dataset_size = DatasetSize(None, "Layer")

    layer = Layer(1, kernel_regularizer=Regularizer())
    model = bdl.Sequential([keras.Input((3,)), bdl.Sequential([layer])])
    model.compile("sgd", "mse")
    model.fit(X, X[:, :1], verbose=0)
    assert layer.dataset_size.counted == 50
    assert layer.kernel_regularizer.dataset_size.counted == 50


def test_unrelated_attribute_dataset_size_is_ignored():
    class Layer(keras.layers.Dense):
        dataset_size = 60_000

    model = bdl.Sequential([keras.Input((3,)), Layer(1)])
    model.compile("sgd", "mse")
    model.fit(X, X[:, :1], verbose=0)


@pytest.mark.parametrize("bad", [0, -3])
def test_dataset_size_must_be_positive(bad):
    with pytest.raises(ValueError, match=f"dataset_size={bad}"):
        NeedsN(dataset_size=bad)


def warned_of_n(dataset_size, data=None, made_under=None, **fit):
    """What a `keras.Model` is told of N in a `fit` with our callbacks."""
    with made_under.scope() if made_under else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(bdl.SGLD(1e-3, dataset_size=dataset_size), "mse")
    callbacks = [
        bdl.callbacks.SampleCollector(1),
        bdl.callbacks.ChainDiagnostics(verbose=0),
    ]
    x, y = (X, X[:, :1]) if data is None else (data, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, epochs=2, verbose=0, callbacks=callbacks, **fit)
    return [str(w.message) for w in caught if "dataset_size" in str(w.message)]


def test_plain_model_with_a_wrong_n_is_warned_once_by_callbacks(mirrored):
    validation = (X[:9], X[:9, :1])  # which is not counted
    for case in (
        {},
        {"validation_data": validation},
        {"data": batched(16)},
        {"made_under": mirrored},
    ):
        (warning,) = warned_of_n(80, **case)
        assert warning.endswith("dataset_size=80, seen 50")


@pytest.mark.parametrize(
    "callback",
    [
        lambda path: bdl.SWA(0),
        lambda path: bdl.SWAG(0),
        lambda path: bdl.callbacks.Checkpoint(path),
        lambda path: bdl.callbacks.EarlyStopping("loss"),
        lambda path: bdl.callbacks.GradientVariance(
            X[:8], X[:8, :1], samples=2
        ),
        lambda path: bdl.callbacks.KLAnnealing(2),
        lambda path: bdl.callbacks.PretrainMeans(1),
    ],
)
def test_every_callback_compares_n_of_layers_in_a_plain_model(
    callback, tmp_path
):
    layer = bdl.layers.MeanFieldDense(1, dataset_size=80)
    model = keras.Sequential([keras.Input((3,)), layer])
    model.compile("sgd", bdl.likelihoods.Gaussian(1.0))
    callbacks = [callback(tmp_path)]
    with pytest.warns(UserWarning, match="dataset_size=80, seen 50"):
        model.fit(X, X[:, :1], epochs=3, verbose=0, callbacks=callbacks)


def test_plain_model_with_the_right_n_is_not_warned():
    assert not warned_of_n(50, validation_data=(X[:9], X[:9, :1]))
    assert not warned_of_n(35, validation_split=0.3)
    # Up to a batch may have been left out.
    assert not warned_of_n(50, data=batched(16, drop_remainder=True))


@pytest.mark.parametrize("form", ["arrays", "tf.data", "sized tf.data"])
def test_fit_refuses_data_without_an_example(form):
    model = bdl.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(bdl.VOGN(initial_curvature=1.0), "mse")
    data = np.ones((0, 2), "float32"), np.ones((0, 1), "float32")
    if form != "arrays":
        batches = tf.data.Dataset.from_tensor_slices(data)
        batches = batches.batch(2, drop_remainder=form == "sized tf.data")
        data = (batches,)
    with pytest.raises(ValueError, match="`x` must hold at least one training"):
        model.fit(*data, verbose=0)
