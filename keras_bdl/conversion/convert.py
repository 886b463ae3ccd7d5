"""Turns any Keras model into a Bayesian network."""

import functools

import keras
import numpy as np
from keras import ops

from keras_bdl.arguments import check_number
from keras_bdl.conversion.model_copy import ModelCopy
from keras_bdl.conversion.model_copy import config_of
from keras_bdl.conversion.model_copy import copy_values
from keras_bdl.conversion.replacements import RULES
from keras_bdl.conversion.replacements import options_of
from keras_bdl.conversion.selection import Selection
from keras_bdl.conversion.selection import own_weights
from keras_bdl.distributions import MeanField
from keras_bdl.layers import Variational
from keras_bdl.layers.mc_dropout import MCDropout
from keras_bdl.random.counter_numbers import sequence


def convert(
    model,
    to,
    prior=None,
    bias_prior=None,
    means_from_weights: bool = True,
    prior_from_weights: float | None = None,
    rate: float | None = None,
    **layer_options,
):
    """Returns a copy of a model in which layers have become Bayesian.

    The copy computes what the model computes, outside of training: the
    weights become the means of the distributions. A `Conv2D` becomes a
    `keras_bdl.layers.MeanFieldConv2D` with all its arguments and its name,
    and likewise `Conv1D`, `Conv3D`, `Conv2DTranspose`, `DepthwiseConv2D`,
    `Dense`, `EinsumDense` and `Embedding`. With `"mc_dropout"` layers with a
    kernel become a `keras_bdl.layers.MCDropout` of themselves.
    Models may be functional, sequential, nested, or of a class of their own
    that has `get_config`; blocks such as `MultiHeadAttention` are converted
    inside. Layers that are shared stay shared. The model that is given stays
    as it is, and the copy has to be compiled.

    What stays as it is: normalisation layers and `PReLU`, for one number a
    feature is no kernel; frozen layers are converted and stay frozen, and so
    do their scales. Regularizers and constraints stay, now of the means.
    Other layers with weights, such as `LSTM`, layers that have distributions
    already, and subclasses of the layers above, are refused if they are
    selected. For `"mc_dropout"` the layer that reads the inputs of the model
    counts as any other, as in the paper; `{"stem": None,
    keras.layers.Layer: "mc_dropout"}` leaves its inputs whole.

    With `prior_from_weights`, MOPED, prior and posterior start out around
    the weights, with the standard deviation

        s_i = max(delta |w_i|, 1e-4)                                      (1)

    for the weight w_i. Both are the same Gaussian then, with KL(q || p) = 0;
    a Radial posterior has the scale `s_i sqrt(D)`, with D weights in the
    tensor, which gives each weight the standard deviation (1). The prior is
    kept with the weights of the layer, and saved with them. A weight of zero
    is held to zero by (1), and biases that were never trained are: give them
    a `bias_prior`.

    Args:
        model: A built model.
        to: `"mean_field"`, `"radial"` or `"mc_dropout"`. Or a dictionary of
            selectors, each with one of these, or with `None` for what stays
            as it is. A selector is a class of layers, a name, a layer of the
            model, or a function of a layer that returns whether it is
            selected; it selects what is inside of these, too. The first one
            that fits counts, and layers that none selects stay as they are.
        prior: Prior of the weights, as of the layers. Defaults to `None`,
            `keras_bdl.priors.Normal(1.0)`.
        bias_prior: Prior of the biases. Defaults to `None`, the `prior`.
        means_from_weights: Whether the layers that are converted keep their
            weights; otherwise they are initialised. Defaults to `True`.
        prior_from_weights: delta of (1), in place of a `prior`. Defaults to
            `None`.
        rate: Rate of the dropout of `"mc_dropout"`.
        **layer_options: For each layer that is converted: `estimator`,
            `rho_initializer`, `variational_bias`, `dataset_size`,
            `truncation` for `"mean_field"`, and `seed`, out of which each
            layer gets a seed of its own. To give layers different ones,
            convert again what the first time left.

    Returns:
        A `keras_bdl.Sequential`, or another `keras_bdl.Model`. It has the
        methods of a class of its own, such as a `train_step`, if the class
        has a `call`; a class that only makes a functional or sequential model
        is left behind.

    Example:

    ```python
    resnet = keras.applications.ResNet50()
    model = keras_bdl.convert(resnet, "mean_field", prior_from_weights=0.1)
    model.compile("adam", "sparse_categorical_crossentropy")
    ```

    Reference:
        - Krishnan et al., [Specifying Weight Priors in Bayesian Deep Neural
          Networks with Empirical Bayes](https://arxiv.org/abs/1906.05323),
          section 3, MOPED
        - Gal and Ghahramani, [Dropout as a Bayesian Approximation](
          https://arxiv.org/abs/1506.02142)
    """
    _check_model(model)
    selection = Selection(to)
    named = {"prior": prior, "bias_prior": bias_prior, "rate": rate}
    options = {k: v for k, v in named.items() if v is not None}
    options |= layer_options
    _check_options(options, selection.kinds)
    if prior_from_weights is not None:
        _check_prior_from_weights(
            prior_from_weights, prior, means_from_weights, selection.kinds
        )
    kinds = selection.plan(model)
    replacements = {
        key: functools.partial(_replacement, kind, options, index)
        for index, (key, kind) in enumerate(kinds.items())
    }
    copy = ModelCopy(model, replacements)
    for layer, new in copy.pairs:
        if id(layer) not in kinds:
            copy_values(layer, new)
        elif means_from_weights:
            _keep_weights(layer, new)
            if prior_from_weights is not None and isinstance(new, Variational):
                names = {p.name for p in new.weight_posteriors}
                names -= set() if bias_prior is None else {"bias"}
                set_prior_from_means(new, prior_from_weights, names)
    return copy.model


def _replacement(kind, options, index, layer):
    """Returns what a layer becomes."""
    known = options_of(kind)
    options = {name: x for name, x in options.items() if name in known}
    if options.get("seed") is not None:
        # With one seed, kernels of one shape would have the same noise.
        state = sequence(options["seed"], index).generate_state(1)
        options["seed"] = int(state[0])
    config = config_of(layer)
    if kind == "mc_dropout":
        inner = type(layer).from_config(config)
        return MCDropout(inner, name=layer.name, **options)
    return RULES[kind][type(layer)](**{**config, **options})


def _keep_weights(layer, new):
    if isinstance(new, MCDropout):
        return copy_values(layer, new.layer)
    variables = {w.name: w for w in new.weights}
    variables |= {p.name: p.mean for p in new.weight_posteriors}
    for weight in own_weights(layer):
        variables[weight.name].assign(weight)


def _check_model(model):
    if not isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a Keras model. "
            f"Received: model={model!r} of type {type(model).__name__}"
        )
    if not model.built:
        raise ValueError(
            "`model` must be built to have weights: call it on an input "
            f"first. Received: model={model.name!r}, which is not built"
        )


def _check_options(options, kinds):
    known = {name: kind for kind in sorted(kinds) for name in options_of(kind)}
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                f"The options of the layers of {sorted(kinds)} must be among "
                f"{sorted(known)}. Received: {name}={value!r}"
            )
    if "mc_dropout" in kinds and "rate" not in options:
        raise ValueError(
            '`rate` must be given for `"mc_dropout"`, such as `rate=0.1`. '
            "Received: rate=None"
        )


def _check_prior_from_weights(delta, prior, means_from_weights, kinds):
    if isinstance(delta, bool):
        raise ValueError(
            "`prior_from_weights` must be the number delta, such as 0.1. "
            f"Received: prior_from_weights={delta}"
        )
    check_number("prior_from_weights", delta, above=0.0)
    if kinds == {"mc_dropout"}:
        raise ValueError(
            '`prior_from_weights` must go with `"mean_field"` or `"radial"`. '
            f"Received: prior_from_weights={delta}, kinds={sorted(kinds)}"
        )
    if prior is not None:
        raise ValueError(
            "`prior_from_weights` makes the prior: give one of the two. "
            f"Received: prior_from_weights={delta}, prior={prior!r}"
        )
    if not means_from_weights:
        raise ValueError(
            "`prior_from_weights` needs `means_from_weights=True`. "
            f"Received: prior_from_weights={delta}, means_from_weights="
            f"{means_from_weights}"
        )


# Of the standard deviation of a weight, as that of a zero would be zero.
SMALLEST_STDDEV = 1e-4


def set_prior_from_means(layer, delta, names):
    """Makes the means of a variational layer the centre of its prior.

    Prior and posterior have the mean w and for each weight the standard
    deviation

        s = max(delta |w|, 1e-4)                                          (1)

    Args:
        layer: A layer with a `Variational` base that is built.
        delta: As in (1).
        names: The tensors to do it for, such as `"kernel"`.
    """
    chosen = {}
    for posterior in layer.weight_posteriors:
        if posterior.name not in names:
            continue
        mean = ops.convert_to_numpy(posterior.mean)
        stddev = np.maximum(delta * np.abs(mean), SMALLEST_STDDEV)  # (1)
        unit = posterior.family(mean, ops.ones_like(mean))
        width = ops.sqrt(unit.variance)  # of a weight, if the scale is 1
        posterior.rho.assign(_softplus_inverse(stddev / width))
        # What the rounded rho stands for: KL(q || p) is then zero.
        q = posterior.distribution()
        chosen[posterior.name] = MeanField(q.mean, q.stddev * width)
    layer.set_prior(**chosen)


def _softplus_inverse(x):
    x = np.asarray(x, "float64")
    return x + np.log(-np.expm1(-x))
