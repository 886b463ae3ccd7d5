"""Tensors of one rank share the trace of a function."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._backend import call_shared
from keras_bdl._backend import keras_compiles_nothing
from keras_bdl._backend import tensorflow as backend
from keras_bdl._backend.tensorflow import MOST_INLINED
from keras_bdl._backend.tensorflow import SMALLEST_COMPILED

SHAPES = [(2, 3), (4, 1), (3,), (5,), (1, 7)]


def test_tensors_of_one_rank_share_a_trace():
    ranks = []

    @tf.function
    def graph(tensors, factor):
        def scaled(x, y, exponent):
            ranks.append(x.shape.rank)
            return factor * x**exponent + y, None

        return [call_shared(scaled, x, x, 2)[0] for x in tensors]

    rng = np.random.default_rng(0)
    tensors = [tf.constant(rng.normal(size=s)) for s in SHAPES]
    factor = tf.constant(3.0, "float64")
    for found, x in zip(graph(tensors, factor), tensors, strict=True):
        np.testing.assert_allclose(found, 3 * x**2 + x, rtol=1e-12)
    assert sorted(ranks) == [1, 2]


def test_tensors_may_have_an_unknown_rank():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def graph(x):
        return call_shared(lambda x: 2 * x, x)

    for shape in SHAPES:
        np.testing.assert_array_equal(graph(tf.ones(shape)), np.full(shape, 2))


def test_nested_tensors_with_a_key_share_a_trace_if_their_shapes_are_equal():
    traced = []

    @tf.function
    def graph(tensors):
        def summed(pairs, exponent):
            traced.append(pairs[0][0].shape)
            return {"sum": tf.add_n([x**exponent * y for x, y in pairs])}

        return [
            call_shared(
                functools.partial(summed),  # never the same object
                [(x, 2 * x), (x, x)],
                exponent,
                key="summed",
                sizes=True,
            )["sum"]
            for x, exponent in zip(tensors, (2, 2, 1, 1.0), strict=True)
        ]

    tensors = [tf.fill([n], 3.0) for n in (2, 2, 2, 4)]
    found = graph(tensors)
    for one, expected in zip(found, (81.0, 81.0, 27.0, 27.0), strict=True):
        np.testing.assert_array_equal(one, expected)
    assert [one.shape for one in found] == [x.shape for x in tensors]
    assert traced == [(2,), (2,), (4,)]


def test_equal_arguments_of_other_types_have_other_traces():
    traced = []

    def first(x, argument):
        traced.append(argument)
        return x

    @tf.function
    def graph(x):
        for argument in (1, 1.0, True, 1):
            call_shared(first, x, argument)

    graph(tf.ones(2))
    assert [type(argument) for argument in traced] == [int, float, bool]


def cube(x):
    return x**3


SEVERAL = [tf.constant([1.0 + i, -2.0]) for i in range(MOST_INLINED + 3)]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_many_calls_have_the_values_and_the_gradients_of_the_function(
    jit_compile,
):
    @tf.function(jit_compile=jit_compile)
    def graph(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                cubes = [call_shared(cube, y) for y in x]
            slopes = tape.gradient(cubes, x)
        return cubes, slopes, outer.gradient(slopes, x)

    for found, expected in zip(
        graph(SEVERAL),
        (cube, lambda x: 3 * x**2, lambda x: 6 * x),
        strict=True,
    ):
        np.testing.assert_allclose(
            found, [expected(x) for x in SEVERAL], rtol=1e-5
        )


def test_only_the_first_calls_of_a_graph_may_be_inlined():
    @tf.function
    def graph(x):
        return [call_shared(cube, y) for y in x]

    traced = graph.get_concrete_function(SEVERAL).graph
    stays = {
        function.signature.name: function.attr["_noinline"].b
        for function in traced.as_graph_def().library.function
    }
    calls = [op for op in traced.get_operations() if "Call" in op.type]
    found = [stays[call.get_attr("f").name] for call in calls]
    assert found == [False] * MOST_INLINED + [True] * 3


with_xla = pytest.mark.skipif(
    not keras_compiles_nothing(), reason="Keras compiles itself"
)


@with_xla
def test_only_large_tensors_of_a_compiled_function_are_compiled():
    sizes = (SMALLEST_COMPILED, SMALLEST_COMPILED - 1)

    @tf.function
    def graph(tensors):
        return [
            call_shared(cube, x, compiled=compiled)
            for x in tensors
            for compiled in (True, False)
        ]

    tensors = [tf.linspace(-1.0, 1.0, size) for size in sizes]
    for i, found in enumerate(graph(tensors)):
        np.testing.assert_allclose(found, tensors[i // 2] ** 3, rtol=1e-5)
    traced = graph.get_concrete_function(tensors).graph
    must_compile = {
        function.signature.name: function.attr["_XlaMustCompile"].b
        for function in traced.as_graph_def().library.function
    }
    calls = [op for op in traced.get_operations() if "Call" in op.type]
    found = [must_compile[call.get_attr("f").name] for call in calls]
    assert found == [True, False, False, False]


@with_xla
@pytest.mark.parametrize(
    "optimizer, options",
    [
        (bdl.VOGN, {}),
        (bdl.VOGN, {"exclude_from_inference": ("bias",)}),
        (bdl.OGN, {"gradient_accumulation_steps": 2}),
        (bdl.IVON, {"exclude_from_inference": ("bias",)}),
        (bdl.ATMC, {"precondition_every": 2}),
        (bdl.SGNHT, {}),
        (
            bdl.SGHMC,
            {"temperature": bdl.schedules.LinearRamp(0, 1, end_step=3)},
        ),
        (bdl.SGLD, {}),
    ],
)
def test_compiled_updates_equal_plain_updates(optimizer, options, monkeypatch):
    worth, asked = backend.pays_to_compile, []
    monkeypatch.setattr(
        backend,
        "pays_to_compile",
        lambda size: asked.append(worth(size)) or asked[-1],
    )
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 3)), rng.normal(size=(12, 2))
    start = rng.normal(size=(3, 2))

    def trained(smallest):
        monkeypatch.setattr(backend, "SMALLEST_COMPILED", smallest)
        dense = keras.layers.Dense(2)
        model = bdl.Sequential([keras.Input((3,)), dense])
        dense.set_weights([start, np.zeros(2)])
        model.compile(optimizer(0.1, seed=0, **options), "mse")
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
        return np.concatenate([w.ravel() for w in model.get_weights()])

    compiled = trained(1)
    assert asked and all(asked)
    asked.clear()
    np.testing.assert_allclose(compiled, trained(2**60), rtol=1e-4, atol=1e-5)
    assert asked and not any(asked)
    assert np.abs(compiled[:6] - start.ravel()).max() > 1e-2


def test_each_graph_has_traces_of_its_own():
    factor = 2.0

    def scaled(x):
        return factor * x

    def graph():
        return tf.function(lambda x: call_shared(scaled, x))(tf.ones(2))

    np.testing.assert_array_equal(graph(), 2.0)
    factor = 3.0
    np.testing.assert_array_equal(graph(), 3.0)
    np.testing.assert_array_equal(call_shared(scaled, tf.ones(2)), 3.0)


@pytest.mark.parametrize(
    "optimizer, tensors, most",
    [(bdl.ATMC, 1, 31), (bdl.VOGN, 2, 20), (bdl.IVON, 2, 20)],
)
def test_one_more_variable_adds_few_operations_to_an_update(
    optimizer, tensors, most
):
    def operations(count):
        chosen = optimizer(1e-3, dataset_size=100)
        variables = [keras.Variable(np.ones((2, 1 + k))) for k in range(count)]
        chosen.build(variables)

        @tf.function
        def step():
            for v in variables:
                g = tf.ones(v.shape)
                g = g if tensors == 1 else (g,) * tensors
                chosen.update_step(g, v, chosen.learning_rate)

        return len(step.get_concrete_function().graph.get_operations())

    more, fewer = operations(8), operations(4)
    assert more - fewer <= 4 * most
