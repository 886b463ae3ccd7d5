import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from keras_bdl import curvature
from keras_bdl.layers import WeightNormDense
from tests.curvature.brute_force import BruteForce
from tests.curvature.brute_force import assert_close
from tests.curvature.brute_force import check
from tests.helpers import cross_entropy

EXAMPLES = 6
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(EXAMPLES, 8, 8, 3)).astype("float32")
LABELS = RNG.integers(0, 3, EXAMPLES)
SEQUENCES = RNG.normal(size=(EXAMPLES, 5, 8)).astype("float32")
VECTORS = RNG.normal(size=(EXAMPLES, 4)).astype("float32")


def perturbed(model, loss="crossentropy", **kwargs):
    """Compiles a model, its weights away from zeros and ones."""
    rng = np.random.default_rng(1)
    for v in model.trainable_variables:
        v.assign(v + 0.3 * rng.normal(size=v.shape))
    if loss == "crossentropy":
        loss = cross_entropy()
    model.compile(loss=loss, **kwargs)
    return model


def classifier(inputs, x):
    return perturbed(keras.Model(inputs, layers.Dense(3)(x)))


def residual_net():
    x = inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same", use_bias=False)(x)
    for filters, strides in ((4, 1), (8, 2)):
        shortcut = x
        x = layers.Conv2D(filters, 3, strides, "same", activation="tanh")(x)
        x = layers.GroupNormalization(2)(x)
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        if strides > 1:
            shortcut = layers.Conv2D(filters, 1, strides)(shortcut)
        x = layers.Activation("tanh")(layers.Add()([x, shortcut]))
    return classifier(inputs, layers.GlobalAveragePooling2D()(x))


def transformer():
    inputs = keras.Input((5,), dtype="int32")
    x = layers.Embedding(4, 8)(inputs)
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 3)(y, y)])
    y = layers.LayerNormalization()(x)
    y = layers.Dense(8)(layers.Dense(16, "gelu")(y))
    x = layers.Add()([x, y])
    return classifier(inputs, layers.GlobalAveragePooling1D()(x))


def shared_layers():
    x = inputs = keras.Input((8, 8, 3))
    conv = layers.Conv2D(3, 3, padding="same", activation="tanh")
    norm, dense = layers.LayerNormalization(), layers.Dense(3, "tanh")
    depthwise = layers.DepthwiseConv2D(3, padding="same")
    separable = layers.SeparableConv2D(3, 3, padding="same")
    x = conv(norm(conv(norm(x))))
    x = separable(depthwise(separable(depthwise(x))))
    x = layers.GlobalAveragePooling2D()(x)
    return classifier(inputs, dense(dense(x)))


def shared_embedding():
    inputs = keras.Input((5,), dtype="int32")
    embedding = layers.Embedding(4, 3)
    flat = layers.Flatten()
    x = [flat(embedding(inputs)), flat(embedding(3 - inputs))]
    return classifier(inputs, layers.Concatenate()(x))


class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.conv = layers.Conv2D(3, 1, activation="tanh")
        self.norm = layers.GroupNormalization(1)

    def build(self, shape):
        self.conv.build(shape)
        self.norm.build(shape)

    def call(self, x):
        return x + self.norm(self.conv(x))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.Sequential(
            [layers.Conv2D(3, 3), layers.Conv2D(3, 3, strides=2)]
        )
        self.block = Block()
        self.pool = layers.GlobalAveragePooling2D()
        self.out = keras.Sequential([keras.Sequential([layers.Dense(3)])])

    def call(self, x):
        return self.out(self.pool(self.block(self.inner(x))))


def subclassed():
    model = Subclassed()
    model(np.zeros((1, 8, 8, 3)))
    return perturbed(model)


def mlp(*regularizers, **kwargs):
    first, second = (*regularizers, None, None)[:2]
    return perturbed(
        keras.Sequential(
            [
                keras.Input((4,)),
                layers.Dense(5, "tanh", kernel_regularizer=first),
                layers.Dense(5, "tanh", activity_regularizer=second),
                layers.Dense(3),
            ]
        ),
        **kwargs,
    )


IDS = RNG.integers(0, 4, (EXAMPLES, 5))


@pytest.mark.parametrize(
    "make, x",
    [
        (residual_net, IMAGES),
        (transformer, IDS),
        (shared_layers, IMAGES),
        (shared_embedding, IDS),
        (subclassed, IMAGES),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_second_moments_of_a_model_equal_a_loop(make, x):
    check(make, x, LABELS)


def nearly_equal_layers():
    """A network with layers of equal shapes that differ in one argument."""
    x = inputs = keras.Input((8, 8, 8))
    for layer in (
        layers.Conv2D(8, 3, padding="same"),
        layers.Conv2D(8, 3, padding="same"),
        layers.Conv2D(8, 3, padding="same", dilation_rate=2),
        layers.Conv2D(8, 3, padding="same", use_bias=False),
        layers.Conv2DTranspose(8, 3, padding="same"),
        layers.Dense(8),
        layers.Dense(8, use_bias=False),
        layers.EinsumDense("abcd,de->abce", (8, 8, 8)),
        layers.EinsumDense("abcd,de->acbe", (8, 8, 8)),
        layers.EinsumDense("abcd,de->abce", (8, 8, 8), bias_axes="e"),
        layers.BatchNormalization(),
        layers.BatchNormalization(axis=1),
        layers.BatchNormalization(center=False),
    ):
        x = layers.Activation("tanh")(layer(x))
    return classifier(inputs, layers.GlobalAveragePooling2D()(x))


def test_layers_that_are_not_quite_alike_share_no_moments():
    x = np.repeat(IMAGES, 3, -1)[..., :8]
    model = nearly_equal_layers()
    true = BruteForce(nearly_equal_layers, model, x, LABELS, training=False)
    names = [v.path for v in model.trainable_variables]

    @tf.function(autograph=False)
    def graph():
        return curvature.second_moments(model, (x, LABELS), training=False)

    assert_close(names, graph(), (true.gradients, true.squares))


def test_batch_norm_in_training_has_gradients_by_example():
    # By definition: a copy of every weight for each example, all examples in
    # one batch, and the gradient by the copies.
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, use_bias=False),
            layers.BatchNormalization(epsilon=0.01),
            layers.Activation("tanh"),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    perturbed(model)
    conv, norm, *_, dense = model.layers
    norm.gamma.assign([0.0, 1.0, -1.0, 2.0])  # no division by zero
    variables = model.trainable_variables
    copies = [
        tf.Variable(np.repeat(v.numpy()[None], EXAMPLES, 0).astype("float64"))
        for v in variables
    ]
    with tf.GradientTape() as tape:
        kernel, gamma, beta, matrix, bias = (tf.unstack(c) for c in copies)
        z = tf.concat(
            [
                tf.nn.conv2d(x[None].astype("float64"), k, 1, "VALID")
                for x, k in zip(IMAGES, kernel, strict=True)
            ],
            0,
        )
        mean, variance = tf.nn.moments(z, [0, 1, 2])
        xhat = (z - mean) / tf.sqrt(variance + norm.epsilon)
        logits = [
            tf.linalg.matvec(
                m, tf.reshape(tf.tanh(x * g + b), [-1]), transpose_a=True
            )
            + c
            for x, g, b, m, c in zip(
                tf.unstack(xhat), gamma, beta, matrix, bias, strict=True
            )
        ]
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
            LABELS, tf.stack(logits)
        )
        loss = tf.reduce_mean(loss)
    rows = [EXAMPLES * g.numpy() for g in tape.gradient(loss, copies)]
    expected = [r.mean(0) for r in rows], [(r**2).mean(0) for r in rows]
    moving = norm.moving_mean.numpy()
    actual = curvature.second_moments(model, (IMAGES, LABELS))
    assert_close([v.path for v in variables], actual, expected)
    np.testing.assert_array_equal(norm.moving_mean, moving)


def test_batch_norm_in_inference_equals_a_loop():
    def make():
        x = inputs = keras.Input((8, 8, 3))
        x = layers.BatchNormalization(axis=1)(x)
        x = layers.BatchNormalization(scale=False)(x)
        x = layers.BatchNormalization(center=False)(x)
        return classifier(inputs, layers.Flatten()(x))

    model = make()
    true = BruteForce(make, model, IMAGES, LABELS, training=False)
    actual = curvature.second_moments(model, (IMAGES, LABELS), training=False)
    names = [v.path for v in model.trainable_variables]
    assert_close(names, actual, (true.gradients, true.squares))


WEIGHTS = np.array([0.5, 2.0, 0.0, 1.0, 3.0, 0.1])


@pytest.mark.parametrize("column", [False, True])
def test_weights_of_examples_multiply_squares_once(column):
    def make():
        x = inputs = keras.Input((8, 8, 3))
        x = layers.Conv2D(3, 3, activation="tanh")(x)
        x = layers.DepthwiseConv2D(6)(x)
        return classifier(inputs, layers.Flatten()(x))

    model = make()
    true = BruteForce(make, model, IMAGES, LABELS, WEIGHTS)
    weights = WEIGHTS[:, None] if column else WEIGHTS
    actual = curvature.second_moments(model, (IMAGES, LABELS, weights))
    names = [v.path for v in model.trainable_variables]
    assert_close(names, actual, (true.gradients, true.squares))


def test_weights_of_examples_with_embedding_and_weight_norm():
    def make():
        inputs = keras.Input((5,), dtype="int32")
        x = layers.Flatten()(layers.Embedding(4, 3)(inputs))
        return classifier(inputs, WeightNormDense(4)(x))

    model = make()
    true = BruteForce(make, model, IDS, LABELS, WEIGHTS)
    actual = curvature.second_moments(model, (IDS, LABELS, WEIGHTS))
    names = [v.path for v in model.trainable_variables]
    assert_close(names, actual, (true.gradients, true.squares))


def test_weights_of_positions_belong_to_the_loss_of_an_example():
    weights = RNG.uniform(size=(EXAMPLES, 5))
    model = perturbed(
        keras.Sequential([keras.Input((5, 8)), layers.Dense(1)]), "mse"
    )
    y = np.ones((EXAMPLES, 5, 1), "float32")
    _, (actual, _) = curvature.second_moments(model, (SEQUENCES, y, weights))
    kernel, bias = (v.numpy() for v in model.trainable_variables)
    residuals = weights[..., None] * (SEQUENCES @ kernel + bias - y)
    rows = np.einsum("btc,bto->bco", SEQUENCES, 2 * residuals) / 5
    np.testing.assert_allclose(actual, (rows**2).mean(0), rtol=1e-5)


def test_label_smoothing_is_a_part_of_the_loss():
    targets = keras.utils.to_categorical(LABELS, 3)
    loss = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=0.2
    )
    config = loss.get_config()
    check(lambda: mlp(loss=loss.from_config(config)), VECTORS, targets)


def test_several_inputs_and_outputs_have_one_gradient_per_example():
    def make():
        inputs = {k: keras.Input((4,), name=k) for k in ("a", "b")}
        x = layers.Dense(5, "tanh")(layers.Add()(list(inputs.values())))
        outputs = {
            "class": layers.Dense(3, name="class")(x),
            "value": layers.Dense(2, name="value")(x),
        }
        crossentropy = keras.losses.SparseCategoricalCrossentropy
        return perturbed(
            keras.Model(inputs, outputs),
            {"class": crossentropy(from_logits=True), "value": "mse"},
            loss_weights={"class": 0.3, "value": 2.0},
        )

    y = {"class": LABELS, "value": VECTORS[:, :2]}
    check(make, {"a": VECTORS, "b": VECTORS[:, ::-1]}, y)


def test_a_model_of_several_outputs_can_be_trained_afterwards():
    # Keras makes what keeps their losses when it first sees them.
    inputs = keras.Input((4,))
    outputs = [layers.Dense(2)(inputs), layers.Dense(3)(inputs)]
    model = keras.Model(inputs, outputs)
    model.compile("sgd", ["mse", "mse"])
    y = [VECTORS[:, :2], VECTORS[:, :3]]
    curvature.second_moments(model, (VECTORS, y))
    model.fit(VECTORS, y, verbose=0)


def test_penalties_are_in_the_gradients_and_not_in_the_squares():
    strong = keras.regularizers.L2(0.5)
    check(lambda: mlp(strong), VECTORS, LABELS)
    check(lambda: mlp(strong, strong), VECTORS, LABELS)
    model = mlp(strong, strong)
    plain = mlp()
    plain.set_weights(model.get_weights())
    gradients, squares = curvature.second_moments(model, (VECTORS, LABELS))
    without = curvature.second_moments(plain, (VECTORS, LABELS))
    for a, b in zip(squares, without[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8)
    assert np.max(np.abs(gradients[0] - without[0][0])) > 0.1


def test_a_given_loss_replaces_the_loss_of_the_model():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    y = np.ones((EXAMPLES, 1), "float32")
    residuals = 2 * (model(VECTORS) - y)
    gradients, squares = curvature.second_moments(
        model, (VECTORS, y), loss=keras.losses.MeanSquaredError()
    )
    rows = VECTORS * residuals
    np.testing.assert_allclose(
        gradients[0][:, 0], np.mean(rows, 0), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        squares[0][:, 0], np.mean(np.square(rows), 0), rtol=1e-5
    )


def test_squares_of_one_example_are_its_squared_gradient():
    model = residual_net()
    gradients, squares = curvature.second_moments(
        model, (IMAGES[:1], LABELS[:1])
    )
    for g, h in zip(gradients, squares, strict=True):
        np.testing.assert_allclose(
            h, np.square(g), rtol=1e-4, atol=1e-6 * np.max(h)
        )


def test_layers_without_influence_have_zeros():
    inputs = keras.Input((4,))
    outputs = [layers.Dense(3)(inputs), layers.Dense(2)(inputs)]
    model = perturbed(keras.Model(inputs, outputs), ["mse", None])
    gradients, squares = curvature.second_moments(
        model, (VECTORS, [VECTORS[:, :3], VECTORS[:, :2]])
    )
    assert np.all(squares[0] > 0)
    for t in (*gradients[2:], *squares[2:]):
        assert not np.any(t)


def test_a_wide_layer_computed_in_pieces_gives_the_same(monkeypatch):
    monkeypatch.setattr("keras_bdl.curvature._rules._dense.BUDGET", 6 * 3 * 2)

    def make():
        x = inputs = keras.Input((5, 8))
        x = layers.Dense(3, "tanh")(x)
        x = layers.EinsumDense("abc,cde->abde", (5, 2, 3))(x)
        return classifier(inputs, layers.Flatten()(x))

    check(make, SEQUENCES, LABELS)
