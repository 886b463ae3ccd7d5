import contextlib
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._data import DatasetSize
from keras_bdl._data._dataset_size import count_by_reading

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


def test_batched_tf_data_is_counted():
    assert told(batched(16)) == 50
    assert told(batched(16, drop_remainder=True)) == 48
    assert told(batched(16).map(lambda x, y: (x, y)).prefetch(1)) == 50


class Batches(keras.utils.PyDataset):
    """Batches of these sizes, one after the other."""

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        self.sizes = sizes

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        size = self.sizes[index]
        return X[:size], X[:size, :1]


def of_generator(sizes):
    """A data set without any step that says how many examples it has."""

    def batches():
        for size in sizes:
            yield X[:size], X[:size, :1]

    spec = tf.TensorSpec((None, 3)), tf.TensorSpec((None, 1))
    data = tf.data.Dataset.from_generator(batches, output_signature=spec)
    return data.apply(tf.data.experimental.assert_cardinality(len(sizes)))


def kept(data):
    """Removes rows inside each batch, so that only reading tells how many."""
    return data.map(lambda x, y: (x[::2], y[::2]))


def without_length():
    rows = tf.data.Dataset.from_tensor_slices((X, X[:, :1], np.arange(50)))
    rows = rows.filter(lambda x, y, i: i % 3 < 1).map(lambda x, y, i: (x, y))
    return rows.batch(8)


class Ns(keras.callbacks.Callback):
    """Reads N off the weight at the end of each epoch."""

    def on_train_begin(self, logs=None):
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(float(self.model.trainable_variables[1][0]))


def fitted(data, optimizer=None, epochs=3, made_under=None, **fit):
    """Returns the model, N in each epoch, and the warnings of N."""
    with made_under.scope() if made_under else contextlib.nullcontext():
        model = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(optimizer or NeedsN(), "mse")
    ns = Ns()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data, epochs=epochs, verbose=0, callbacks=[ns], **fit)
    said = [
        str(w.message)
        for w in caught
        if " counts" in str(w.message) or "examples" in str(w.message)
    ]
    return model, ns.seen, said


# The data, N in the first epoch, and the true N from then on.
COUNTED = {
    "PyDataset": (lambda: Batches([16, 16, 16, 2]), 50, 50),
    "first batch small": (lambda: Batches([10, 40, 40, 40]), 70, 130),
    "middle batch small": (lambda: Batches([40, 10, 40, 40]), 160, 130),
    "threads": (lambda: Batches([40, 10, 40, 40], workers=2), 160, 130),
    "generator": (lambda: of_generator([40, 40, 10, 40]), 160, 130),
    "rows removed in batches": (lambda: kept(batched(16)), 50, 25),
    "repeat of such rows": (lambda: kept(batched(16)).repeat(3), 50, 25),
    "filter": (without_length, 50, 17),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_n_is_exact_after_the_first_epoch(kind):
    data, first, exact = COUNTED[kind]
    model, ns, said = fitted(data())
    assert ns == [first, exact, exact]
    assert len(said) == (first != exact)
    for warning in said:
        assert f"{exact} training examples" in warning
        assert f"estimated {first}" in warning
    # The variable of the count is no weight.
    assert len(model.weights) == 2


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_counting_works_in_compiled_steps_and_on_replicas(
    steps_per_execution, mirrored
):
    sizes, optimizer = [40, 10, 40, 39], NeedsN
    if steps_per_execution == 1:  # as strategies of CPUs need
        _, ns, _ = fitted(of_generator(sizes), made_under=mirrored)
        assert ns == [160, 129, 129]
        return
    model = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer(), "mse", jit_compile=True, steps_per_execution=3)
    ns = Ns()
    with pytest.warns(UserWarning, match="129 training examples"):
        model.fit(of_generator(sizes), epochs=2, verbose=0, callbacks=[ns])
    assert ns.seen == [160, 129]


def test_an_epoch_that_is_a_part_of_a_pass_does_not_change_n():
    # Keras goes on with the same pass in the next epoch.
    data = Batches([10, 5, 10, 10, 5])
    _, ns, said = fitted(data, epochs=7, steps_per_epoch=2, shuffle=False)
    assert ns[:3] == [45, 45, 45] and ns[3:] == [40] * 4
    assert len([w for w in said if "estimated 45" in w]) == 1


def test_a_second_fit_uses_the_exact_number_at_once():
    data, other = Batches([40, 10, 40, 40]), Batches([5, 10, 10])
    model, ns, _ = fitted(data, epochs=1)
    assert ns == [160]
    again = Ns()
    model.fit(data, verbose=0, callbacks=[again])  # a warning would raise
    assert again.seen == [130]
    step = model.train_function
    with pytest.warns(UserWarning, match="25 training examples.*estimated 20"):
        model.fit(other, verbose=0, callbacks=[again])
    assert again.seen == [20]
    assert model.train_function is step


def test_given_n_is_compared_with_the_exact_number_only():
    data = Batches([40, 10, 40, 40])
    _, ns, said = fitted(data, NeedsN(130))
    assert ns == [130] * 3 and not said
    _, ns, said = fitted(data, NeedsN(160))
    assert ns == [160] * 3 and len(said) == 1
    assert "dataset_size=160, counted 130" in said[0]
    assert told(batched(16), 50) == 50  # a warning would raise
    with pytest.warns(UserWarning, match="dataset_size=64, counted 50"):
        told(batched(16), 64)


def test_repeats_that_hide_the_number_of_examples_are_warned_of():
    data = of_generator([10, 10]).repeat(3)
    _, ns, said = fitted(data, epochs=1)
    assert ns == [60]
    assert "Leave out `.repeat()`, or give `dataset_size`" in said[0]
    assert told(data, 20) == 20  # a warning would raise


def test_weights_of_examples_and_validation_do_not_change_the_count():
    x, y = X[:40], X[:40, :1]
    assert told(X, class_weight=None, sample_weight=np.zeros(50)) == 50
    data = Batches([20, 5, 20])
    _, ns, _ = fitted(data, epochs=2, validation_data=(x, y))
    assert ns == [60, 45]


def test_callback_list_of_the_user_is_left_as_it_was():
    model = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(NeedsN(), "mse")
    mine = Ns()
    callbacks = keras.callbacks.CallbackList(
        [mine], add_history=True, model=model, epochs=2
    )
    before = list(callbacks.callbacks)
    with pytest.warns(UserWarning, match="25 training examples"):
        model.fit(
            Batches([10, 5, 10]), epochs=2, verbose=0, callbacks=callbacks
        )
    assert mine.seen == [30, 25]
    assert callbacks.callbacks == before


def test_endless_data_counts_batch_size_times_steps_and_warns_once():
    model = bdl.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(NeedsN(), "mse")
    data = tf.data.Dataset.random(0).map(lambda _: (X[:10], X[:10, :1]))
    with pytest.warns(UserWarning, match="data of 30 examples per epoch"):
        model.fit(data, steps_per_epoch=3, verbose=0)
    model.fit(data, steps_per_epoch=4, verbose=0)  # a warning would raise
    assert float(model.trainable_variables[1][0]) == 40


def test_endless_repeats_of_known_data_need_no_estimate():
    # A warning would raise.
    assert told(batched(16).repeat(), steps_per_epoch=3) == 50
    assert told(kept(batched(16)).repeat(), 25, steps_per_epoch=3) == 25


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

    finite = (one for one in [(X[:10], X[:10, :1])])
    with pytest.raises(ValueError, match=r"NeedsN\(..., dataset_size="):
        told(finite)
    assert told(generator(), dataset_size=7, steps_per_epoch=1) == 7
    plain = keras.optimizers.SGD(0.1)
    assert np.isfinite(told(generator(), optimizer=plain, steps_per_epoch=1))


def test_generator_is_counted_in_its_first_epoch():
    def generator():
        while True:
            for size in (20, 20, 7):
                yield X[:size], X[:size, :1]

    seen = []

    class Seen(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(float(self.model.trainable_variables[1][0]))

    with pytest.warns(UserWarning) as found:
        last = told(
            generator(), steps_per_epoch=3, epochs=2, callbacks=[Seen()]
        )
    assert (seen[0], last) == (60, 47)
    said = [str(one.message) for one in found]
    assert any("60" in text and "47" in text for text in said)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # of Keras
def test_tf_data_of_unknown_length_are_read_once_to_count():
    def rows():
        for size in (20, 20, 7):
            yield X[:size], X[:size, :1]

    def parts(i):
        return batched(16).map(lambda x, y: (x[i:], y[i:]))

    spec = tf.TensorSpec((None, 3)), tf.TensorSpec((None, 1))
    from_generator = tf.data.Dataset.from_generator(rows, output_signature=spec)
    flat = tf.data.Dataset.range(2).flat_map(parts)
    for data, n in ((from_generator, 47), (flat, 96)):
        with pytest.warns(UserWarning, match="reads them once"):
            assert told(data) == n
        assert told(data, dataset_size=7) == 7  # no warning, no pass
    ranks = tf.data.Dataset.from_generator(rows, output_types=("float32",) * 2)
    with pytest.warns(UserWarning, match="reads them once"):
        assert count_by_reading(ranks, verbose=0).examples == 47


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
            (X[:8], X[:8, :1]), samples=2
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
