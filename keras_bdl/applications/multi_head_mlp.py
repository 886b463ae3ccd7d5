"""Dense layers with an output for each of many tasks."""

import keras

from keras_bdl.models import Model


def MultiHeadMLP(
    input_shape=(28, 28, 1),
    heads: int = 5,
    classes: int = 2,
    units=(200, 200, 200, 200),
    activation="relu",
    classifier_activation=None,
    name: str | None = None,
):
    """Makes a network of dense layers with a head for each task.

    All heads read the last layer of one body. The model has a list of
    outputs, and the network of one task is cut out of it, with the body in
    common:

        networks = [keras_bdl.Model(model.input, y) for y in model.outputs]

    Convert first, then cut: the layers that are shared stay so. With the
    defaults it has 279,610 weights.

    Args:
        input_shape: Shape of an input, which is flattened. Defaults to
            `(28, 28, 1)`.
        heads: Number of tasks. With `1`, all tasks share the classifier.
            Defaults to `5`.
        classes: Number of classes of a task. Defaults to `2`.
        units: Units of each hidden layer. Defaults to
            `(200, 200, 200, 200)`, the network of the Radial paper.
        activation: Activation of the hidden layers, as Keras takes it.
            Defaults to `"relu"`.
        classifier_activation: Activation of the heads. Defaults to `None`,
            logits.
        name: Name of the model. Defaults to `None`: `"multi_head_mlp"`.

    Returns:
        A `keras_bdl.Model`.

    Example:

    ```python
    plain = keras_bdl.applications.MultiHeadMLP()
    model = keras_bdl.convert(plain, "radial")
    networks = [keras_bdl.Model(model.input, y) for y in model.outputs]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for network, (x, y) in zip(networks, tasks):
        network.compile("adam", loss)
        network.fit(x, y)
        keras_bdl.continual.posterior_becomes_prior(network)
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), section 4.2 and appendix D.2
    """
    if isinstance(heads, bool) or not isinstance(heads, int) or heads < 1:
        raise ValueError(
            f"`heads` must be a positive integer. Received: heads={heads!r}"
        )
    inputs = keras.Input(input_shape)
    x = keras.layers.Flatten(name="flatten")(inputs)
    for k, size in enumerate(units, start=1):
        x = _dense(size, activation, f"dense{k}")(x)
    outputs = [
        _dense(classes, classifier_activation, f"head{k}")(x)
        for k in range(1, heads + 1)
    ]
    return Model(inputs, outputs, name=name or "multi_head_mlp")


def _dense(units, activation, name):
    # Also in the heads, as the paper says.
    return keras.layers.Dense(
        units, activation, kernel_initializer="he_normal", name=name
    )
