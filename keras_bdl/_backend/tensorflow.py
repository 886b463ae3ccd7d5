"""The backend interface on TensorFlow."""

import functools
import platform
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bdl import _keras

PHILOX = 1  # of `tf.random.Algorithm`

# Networks with more calls than this have long steps, in which calls cost less
# than one per cent.
MOST_INLINED = 16

# Compiling takes 50 milliseconds for each shape. In dense networks with larger
# tensors than this, steps become 1.2 to 1.4 times as fast. Those of LeNet-5,
# whose tensors are smaller, become no faster.
SMALLEST_COMPILED = 2**16

# The attribute of a graph: the number of its calls, and the traced functions.
_TRACED = "_keras_bdl_shared_traces"


def philox(shape: Any, key: Any, counter: Any, dtype: str = "int32") -> Any:
    """Returns random integers, a function of key and counter.

    `key` is one 64-bit integer, `counter` are two, the lower half first.
    """
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape if tf.is_tensor(shape) else tuple(shape),
        key=key,
        counter=counter,
        alg=PHILOX,
        dtype=tf.as_dtype(dtype),
    )


def words(integers: Any) -> Any:
    """Returns 64-bit integers as unsigned integers of the same bits."""
    return tf.bitcast(tf.cast(integers, tf.int64), tf.uint64)


def is_tracing() -> bool:
    """Returns whether the code becomes part of a graph and does not run now."""
    return not tf.executing_eagerly()


def outside_of_trace() -> Any:
    """Returns a context in which code runs now, also while tracing."""
    return tf.init_scope()


def value_and_grad(
    function: Callable[[], Any],
    variables: Sequence[Any],
    *,
    dense: bool = False,
) -> tuple[Any, list[Any]]:
    """Returns a scalar function of variables and its gradients.

    With `dense`, each gradient is one tensor, zero for an unused variable.
    """
    with tf.GradientTape() as tape:
        value = function()
    tensors = [getattr(v, "value", v) for v in variables]
    if not dense:
        return value, tape.gradient(value, tensors)
    gradients = tape.gradient(value, tensors, unconnected_gradients="zero")
    return value, [tf.convert_to_tensor(g) for g in gradients]


def hvp(
    function: Callable[[], Any],
    variables: Sequence[Any],
    vectors: Sequence[Any],
) -> list[Any]:
    """Returns `d(g'v)/dw` with g the gradient of a scalar function of w."""
    tensors = [getattr(v, "value", v) for v in variables]
    with tf.GradientTape() as tape:
        _, gradients = value_and_grad(function, variables, dense=True)
        product = tf.add_n(
            [
                tf.reduce_sum(tf.cast(g, v.dtype) * v)
                for g, v in zip(gradients, vectors, strict=True)
            ]
        )
    columns = tape.gradient(product, tensors, unconnected_gradients="zero")
    return [tf.convert_to_tensor(c) for c in columns]


def replica_id() -> Any:
    """Returns the number of this replica, a scalar tensor or 0."""
    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


def num_replicas() -> int:
    """Returns how many replicas share a training step."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def first_tensor(data: Any) -> Any:
    """Returns the first tensor of a batch, whose axis 0 counts the examples."""
    return next(t for t in keras.tree.flatten(data) if t is not None)


def in_several_workers(strategy: Any) -> bool:
    """Returns whether a strategy has replicas on more than one machine."""
    return isinstance(
        strategy, tf.distribute.MultiWorkerMirroredStrategy
    ) and _keras.in_several_processes(strategy)


def pays_to_compile(size: int) -> bool:
    """Returns whether XLA should compile a part of a step on the CPU.

    `size` is the number of elements of its largest tensor. On a machine that
    has only CPUs, Keras does not compile training steps. Plain TensorFlow reads
    and writes memory once for each operation, XLA once for many. Compiling
    takes time, so it pays for large tensors only.
    """
    return (
        size >= SMALLEST_COMPILED
        and not tf.executing_eagerly()
        and not tf.distribute.has_strategy()
        and keras_compiles_nothing()
    )


@functools.cache
def keras_compiles_nothing() -> bool:
    """Returns whether Keras leaves training steps to plain TensorFlow.

    Keras compiles no training step on a machine that has only CPUs. Without XLA
    for CPUs, the result is `False`: TensorFlow for TPUs lacks it, and systems
    other than Linux may lack it.
    """
    kinds = {d.device_type for d in tf.config.list_physical_devices()}
    if kinds != {"CPU"} or platform.system() != "Linux":
        return False
    function = compile_part(tf.identity)
    with tf.init_scope():
        try:
            function(0.0)
        except tf.errors.NotFoundError:
            return False
    return True


def compile_part(function: Callable) -> Callable:
    """Returns a function that XLA compiles as one operation of a graph."""
    return tf.function(function, jit_compile=True, autograph=False)


def compile_recomputed(function: Callable) -> Callable:
    """Returns a compiled function of tensors and further arguments.

    The gradient with respect to the first argument, nested tensors, computes
    the function again, which is faster than storing a chain of operations.
    """
    forward = compile_part(function)

    @compile_part
    def backward(tensors: Any, rest: Any, upstream: Any) -> Any:
        flat = tf.nest.flatten(tensors)
        with tf.GradientTape() as tape:
            tape.watch(flat)
            results = tf.nest.flatten(function(tensors, *rest))
        return tape.gradient(
            results, flat, upstream, tf.UnconnectedGradients.ZERO
        )

    def call(tensors: Any, *rest: Any) -> Any:
        structure: list[Any] = []

        @tf.custom_gradient
        def results_of(*flat: Any) -> Any:
            packed = tf.nest.pack_sequence_as(tensors, flat)
            results = forward(packed, *rest)
            structure.append(results)
            return tf.nest.flatten(results), lambda *upstream: backward(
                packed, rest, upstream
            )

        flat = results_of(*tf.nest.flatten(tensors))
        return tf.nest.pack_sequence_as(structure[-1], flat)

    return call


def call_shared(
    function: Callable,
    *args: Any,
    key: Hashable | None = None,
    sizes: bool = False,
    compiled: bool = False,
) -> Any:
    """Returns `function(*args)`; calls with tensors of one rank share a trace.

    A new operation of a graph costs Python about half a millisecond, and the
    update of one variable has up to seventy operations. With this function, the
    graph of a training step has one operation for each variable, a call.
    Before the graph runs, TensorFlow replaces the first 16 calls by their
    operations. Each replacement takes about 25 milliseconds, once, and saves up
    to 75 microseconds in each step, which pays only in small networks.

    Tensors of another dtype have another trace. A trace belongs to the graph in
    which the call stands, so `function` may read variables and tensors of this
    graph. In eager mode, and on several devices, whose variables differ,
    `function` runs as it is. Tensors in a graph have no static sizes, unless
    `sizes` is `True`: only tensors of one shape then share a trace.

    Two functions with the same `key` share their traces. With `compiled`, XLA
    compiles calls with large tensors, if Keras compiles nothing: a chain of
    elementwise operations then reads and writes each tensor once. Make random
    bits outside of `function`: XLA makes them more slowly.
    """
    if tf.executing_eagerly() or tf.distribute.has_strategy():
        return function(*args)
    graph = tf.compat.v1.get_default_graph()
    first: tuple[int, dict[Hashable, Callable]] = (0, {})
    calls, traces = getattr(graph, _TRACED, first)
    setattr(graph, _TRACED, (calls + 1, traces))
    leaves = [
        tf.convert_to_tensor(leaf) if tf.is_tensor(leaf) else leaf
        for leaf in tf.nest.flatten(args)
    ]
    tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]
    kinds = tuple(_kind(leaf, sizes) for leaf in leaves)
    options: dict[str, Any] = {}
    largest = max((t.shape.num_elements() or 0 for t in tensors), default=0)
    if compiled and pays_to_compile(largest):
        options["jit_compile"] = True
    elif calls >= MOST_INLINED:
        options["experimental_attributes"] = {"_noinline": True}
    name = (function if key is None else key, kinds, *options)
    if name not in traces:

        def of_tensors(*tensors: Any) -> Any:
            left = iter(tensors)
            filled = [next(left) if tf.is_tensor(x) else x for x in leaves]
            return function(*tf.nest.pack_sequence_as(args, filled))

        specs = [kind for kind in kinds if isinstance(kind, tf.TensorSpec)]
        traced = tf.function(of_tensors, autograph=False, **options)
        traces[name] = traced.get_concrete_function(*specs)
    return traces[name](*tensors)


def _kind(leaf: Any, sizes: bool) -> Any:
    """Returns what a trace depends on: a specification, or type and value."""
    if not tf.is_tensor(leaf):
        return type(leaf), leaf
    rank = leaf.shape.rank
    shape = leaf.shape if sizes or rank is None else [None] * rank
    return tf.TensorSpec(shape, leaf.dtype)


def jvp(
    function: Callable[[], list], tensors: Sequence[Any], direction: Sequence
) -> tuple[list, list]:
    """Returns outputs f and their derivatives J d in a direction of tensors.

    The gradient of v^T f is J^T v, which is linear in v. Its derivative with
    respect to v, in the direction d, is J d. The result does not need J^T v
    itself, so a graph does not compute it. `tf.autodiff.ForwardAccumulator`
    needs more products: it multiplies the derivative of the inputs, which is
    zero, by the weights of the first layer.
    """
    zero = tf.UnconnectedGradients.ZERO
    with tf.GradientTape(watch_accessed_variables=False) as outer:
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(tensors)
            outputs = function()
        # Any v: its value has no effect.
        v = [tf.zeros_like(output) for output in outputs]
        outer.watch(v)
        gradients = inner.gradient(outputs, tensors, v, zero)
        # The gradient of a lookup is sparse.
        gradients = [tf.convert_to_tensor(g) for g in gradients]
    return outputs, outer.gradient(gradients, v, direction, zero)


def max_pool_by_places(
    inputs: Any, pool_size: Sequence, strides: Sequence, padding: str
) -> Any:
    """Returns the maxima of windows, read from their places in the inputs."""
    highest, places = tf.nn.max_pool_with_argmax(
        inputs, pool_size, strides, padding.upper(), include_batch_in_index=True
    )
    found = tf.gather(tf.reshape(inputs, [-1]), places)
    return tf.ensure_shape(found, highest.shape)


def argmax(tensor: Any) -> Any:
    """Returns the place of each row's maximum; ONNX and LiteRT can do it."""
    return tf.argmax(tensor, -1, output_type=tf.int32)


def compiled(function: Callable, *, jit_compile: Any = None) -> Callable:
    """Returns a function that is traced for few signatures, and compiled."""
    return tf.function(
        function,
        autograph=False,
        jit_compile=jit_compile,
        reduce_retracing=True,
    )


def tensor(x: Any) -> Any:
    """Returns an array, or the present value of a variable, as a tensor."""
    return tf.convert_to_tensor(x)


def adopted(array: Any) -> Any:
    """Returns a tensor with the memory of a NumPy array, which must not change.

    Without a copy on the CPU, if the memory is aligned to 64 bytes.
    """
    if array.dtype.kind not in "fiu":  # a dtype that NumPy does not know
        return tf.convert_to_tensor(array)
    borrowed = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.identity(borrowed)  # on the accelerator, if there is one


def vjp(
    function: Callable[[], tuple[list[Any], Any]], tensors: Sequence[Any]
) -> tuple[Callable[[list[Any]], list[Any]], Any]:
    """Returns a function of cotangents, for several of them, and aux.

    `function` returns a list, computed from these tensors, and anything.
    """
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(tensors)
        values, aux = function()

    def pull_back(cotangents: list[Any]) -> list[Any]:
        return tape.gradient(
            values, tensors, cotangents, unconnected_gradients="zero"
        )

    return pull_back, aux


def after(tensors: Any, structure: Any) -> Any:
    """Returns nested tensors that are available only after other tensors.

    TensorFlow runs an operation as soon as its inputs exist, so memory may hold
    results long before they are needed. Other objects stay unchanged.
    """
    if not tf.inside_function():
        return structure
    with tf.control_dependencies(tensors):
        return keras.tree.map_structure(
            lambda t: tf.identity(t) if tf.is_tensor(t) else t, structure
        )


def poisson(rates: Any, seed: Any) -> Any:
    """Returns Poisson counts of the shape and the dtype of `rates`."""
    return tf.random.stateless_poisson(
        tf.shape(rates), seed, rates, dtype=rates.dtype
    )


def grad(
    function: Callable[..., Any], tensors: Sequence[Any], has_aux: bool = False
) -> Any:
    """Returns the gradients of a scalar function of tensors, zero if unused.

    With `has_aux`, the function returns a pair, whose second part comes back
    beside the gradients.
    """
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
        target, aux = value if has_aux else (value, None)
    found = tape.gradient(target, tensors, unconnected_gradients="zero")
    gradients = [tf.convert_to_tensor(g) for g in found]
    return (gradients, aux) if has_aux else gradients


def split(tensor: Any, sizes: Sequence[int]) -> list[Any]:
    """Returns the parts of a vector, by one operation."""
    return tf.split(tensor, sizes)
