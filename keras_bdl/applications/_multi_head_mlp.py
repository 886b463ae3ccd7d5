"""A network of dense layers with one output for each task."""

from collections.abc import Sequence

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl._arguments import check_count
from keras_bdl.models import Model


def MultiHeadMLP(
    input_shape: ImageShape = (28, 28, 1),
    heads: int = 5,
    classes: int = 2,
    *,
    units: Sequence[int] = (200, 200, 200, 200),
    activation: Activation = "relu",
    classifier_activation: Activation = None,
    name: str | None = None,
) -> Model:
    """Makes a network of dense layers with one head for each task.

    Use it for continual learning. All heads read the last layer of one body.
    The model has a list of outputs, one for each head. Make one network for
    each task from the model. These networks share the body:

        networks = [keras_bdl.Model(model.input, y) for y in model.outputs]

    Call `keras_bdl.convert` before you make the networks, so that they share
    the converted layers. With the defaults, the model has 279,610 weights.

    Args:
        input_shape: Shape of an input, which is flattened. Defaults to
            `(28, 28, 1)`.
        heads: Number of heads, one for each task. With `1`, all tasks share
            the classifier. Defaults to `5`.
        classes: Number of classes of a task. Defaults to `2`.
        units: Number of units of each hidden layer. Defaults to
            `(200, 200, 200, 200)`, the network of the Radial paper.
        activation: Activation of the hidden layers. Defaults to `"relu"`.
        classifier_activation: Activation of the heads. Defaults to `None`,
            logits.
        name: Name of the model. Defaults to `None`, `"multi_head_mlp"`.

    Returns:
        A `keras_bdl.Model`. The weights start at random.

    Example:

    ```python
    plain = keras_bdl.applications.MultiHeadMLP((4,), heads=2, units=(8,))
    model = keras_bdl.convert(plain, "radial")
    networks = [keras_bdl.Model(model.input, y) for y in model.outputs]
    for network in networks:
        network.compile("adam", loss)
        network.fit(x, y % 2)
        keras_bdl.continual.posterior_becomes_prior(network)
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), section 4.2 and appendix D.2
    """
    check_count("heads", heads)
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
    # As in the paper, the heads have this initializer, too.
    return keras.layers.Dense(
        units, activation, kernel_initializer="he_normal", name=name
    )
