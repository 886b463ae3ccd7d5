"""The function `convert`, which makes any Keras model Bayesian."""

import functools
import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import PriorLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_verbose
from keras_bdl._arguments import did_you_mean
from keras_bdl._conversion._adapter import AdaptedLayer
from keras_bdl._conversion._adapter import adapted
from keras_bdl._conversion._adapter import has_adapter
from keras_bdl._conversion._adapter import keep_adapter
from keras_bdl._conversion._model_copy import ModelCopy
from keras_bdl._conversion._model_copy import config_of
from keras_bdl._conversion._model_copy import copy_values
from keras_bdl._conversion._selection import OPTIONS
from keras_bdl._conversion._selection import RULES
from keras_bdl._conversion._selection import Selection
from keras_bdl._conversion._selection import own_weights
from keras_bdl._conversion._selection import summary
from keras_bdl._data._batches import preprocesses
from keras_bdl._random._seeds import sequence
from keras_bdl.distributions import MeanField
from keras_bdl.layers._mc_dropout import MCDropout
from keras_bdl.layers._variational import Variational


def convert(
    model: keras.Model,
    to: str | dict,
    *,
    prior: PriorLike | None = None,
    bias_prior: PriorLike | None = None,
    means_from_weights: bool = True,
    prior_from_weights: float | None = None,
    rate: float | None = None,
    strict: bool = False,
    verbose: str | int = "auto",
    **layer_options: Any,
) -> keras.Model:
    """Returns a copy of a model with Bayesian layers.

    Use this function to make an existing network Bayesian, trained or not.
    The weights become the means of the distributions, so without training,
    the copy computes the same outputs as the model. With `"mean_field"` and
    `"radial"`, a `Conv2D` becomes a `keras_bdl.layers.MeanFieldConv2D` or
    `RadialConv2D` with the same arguments and the same name. `Conv1D`,
    `Conv3D`, `Conv2DTranspose`, `DepthwiseConv2D`, `Dense`, `EinsumDense` and
    `Embedding` are converted in the same way. With `"mc_dropout"`, each layer
    with a kernel is wrapped in a `keras_bdl.layers.MCDropout`.

    The model may be functional, sequential, nested, or an object of a
    subclass with a `get_config`. Blocks such as `MultiHeadAttention` are
    converted inside. Shared layers stay shared. The function does not change
    the model. Compile the copy before training.

    Normalisation layers and `PReLU` stay unchanged, because they have numbers
    per feature and no kernel. The copy of a frozen layer is Bayesian and
    frozen: its means and scales do not train. Regularizers and constraints
    apply to the means. Any other layer with weights stays unchanged, and the
    printed summary names it. Examples are an `LSTM`, a layer that already has
    distributions, and a subclass of a layer named above.

    A layer with an adapter (`enable_lora`) becomes a
    `keras_bdl.extend.AdaptedLayer`: the two factors of the adapter and the bias
    get distributions, and the kernel stays frozen. `"mc_dropout"` leaves such
    layers unchanged.

    As in the paper, `"mc_dropout"` also applies dropout to the inputs of the
    model, in front of the first layer. To prevent this, exclude that layer:
    `{"stem": None, keras.layers.Layer: "mc_dropout"}` adds no dropout before
    the layer `"stem"`.

    `prior_from_weights` (MOPED) centres prior and posterior on the weights.
    Both get the standard deviation

        s_i = max(delta |w_i|, 1e-4)                                      (1)

    for the weight w_i. Prior and posterior are then the same Gaussian, with
    KL(q || p) = 0. The prior is stored and saved with the weights of the layer.
    A weight of zero gets the smallest deviation in (1) and stays near zero.
    Biases that were never trained are zero: give them a `bias_prior`.

    Args:
        model: A built model.
        to: `"mean_field"`, `"radial"` or `"mc_dropout"`. Or a dictionary from
            selectors to these words, or to `None` for layers that stay
            unchanged. A selector is a class of layers, a name, a layer of the
            model, a function that returns whether it selects a layer, or
            `"lora"` for all layers with an adapter. A selector also selects all
            layers inside a selected layer. The first selector that matches
            decides. Layers that no selector matches stay unchanged.
        prior: Prior of the weights, anything that the layers accept as
            `prior`. Defaults to `None`, for which the layers use
            `keras_bdl.priors.Normal(1.0)`.
        bias_prior: Prior of the biases. Defaults to `None`, the `prior`.
        means_from_weights: Whether converted layers keep their weights as
            means. Otherwise their initializers draw the means. Defaults to
            `True`.
        prior_from_weights: delta of (1). Give either this argument or `prior`.
            Defaults to `None`.
        rate: Dropout rate for `"mc_dropout"`. Defaults to `None`.
        strict: Whether to raise an error if `to` selects a layer with weights
            that no rule converts. Defaults to `False`: the layer stays
            unchanged.
        verbose: `0` prints no summary. Defaults to `"auto"`, which is `1`.
        **layer_options: Arguments of each converted layer: `estimator`,
            `rho_initializer`, `variational_bias`, `dataset_size`,
            `truncation` for `"mean_field"`, and `seed`, from which each layer
            gets its own seed. To give layers different options, convert only
            some layers, and call `convert` on the result for the others.

    Returns:
        A `keras_bdl.Sequential` or another `keras_bdl.Model`. If the class of
        the model has a `call`, the copy has the methods of that class, such
        as a `train_step`. If the class only builds a functional or sequential
        model, the copy has no methods of that class.

    Example:

    ```python
    net = keras_bdl.convert(model, "mean_field", prior_from_weights=0.1)
    net.compile("adam", loss)
    net.fit(x, y)
    ```

    Reference:
        - Krishnan et al., [Specifying Weight Priors in Bayesian Deep Neural
          Networks with Empirical Bayes](https://arxiv.org/abs/1906.05323),
          section 3, MOPED
        - Gal and Ghahramani, [Dropout as a Bayesian Approximation](
          https://arxiv.org/abs/1506.02142)
    """
    _check_model(model)
    verbose = check_verbose(verbose)
    selection = Selection(to, strict=check_bool("strict", strict))
    named = {"prior": prior, "bias_prior": bias_prior, "rate": rate}
    options = {k: v for k, v in named.items() if v is not None}
    options |= layer_options
    _check_options(options, selection.kinds)
    if prior_from_weights is not None:
        _check_prior_from_weights(
            prior_from_weights, prior, means_from_weights, selection.kinds
        )
    if preprocesses(model):
        warnings.warn(
            "`convert` leaves out the preprocessor of the model. Preprocess "
            "the data of the copy first, for example with "
            "`model.preprocess_samples(x, y)`. "
            f"Received: model={model.name!r} with "
            f"preprocessor={type(model.preprocessor).__name__}",
            stacklevel=2,
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
            continue
        if isinstance(new, AdaptedLayer):
            keep_adapter(layer, new, means_from_weights)
        elif means_from_weights:
            _keep_weights(layer, new)
        if prior_from_weights is not None:
            _set_priors(new, prior_from_weights, bias_prior)
    if verbose:
        layers = _keras.inner_layers(model)
        print(summary(kinds, layers, selection.uncovered))
    return copy.model


def _replacement(
    kind: str, options: dict, index: int, layer: keras.Layer
) -> keras.Layer:
    """Returns the new Bayesian layer that replaces a layer."""
    options = {name: x for name, x in options.items() if name in OPTIONS[kind]}
    if options.get("seed") is not None:
        # With one seed, kernels of the same shape would get the same noise.
        state = sequence(options["seed"], index).generate_state(1)
        options["seed"] = int(state[0])
    config = config_of(layer)
    if kind == "mc_dropout":
        inner = type(layer).from_config(config)
        return MCDropout(inner, name=layer.name, **options)
    if has_adapter(layer):
        return adapted(RULES[kind], layer, config, options)
    return RULES[kind][type(layer)](**{**config, **options})


def _set_priors(
    new: keras.Layer, prior_from_weights: float, bias_prior: PriorLike | None
) -> None:
    for layer in _keras.all_layers(new):
        if isinstance(layer, Variational):
            names = {p.name for p in layer.weight_posteriors}
            names -= set() if bias_prior is None else {"bias"}
            _set_prior_from_means(layer, prior_from_weights, names)


def _keep_weights(layer: keras.Layer, new: keras.Layer) -> None:
    if isinstance(new, MCDropout):
        copy_values(layer, new.layer)
        return
    variables = {w.name: w for w in new.weights}
    variables |= {p.name: p.mean for p in new.weight_posteriors}
    for weight in own_weights(layer):
        variables[weight.name].assign(weight)


def _check_model(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a Keras model. "
            f"Received: model={model!r} of type {type(model).__name__}"
        )
    if not model.built:
        raise ValueError(
            "`model` gets its weights when it is built. Call the model on an "
            f"input first. Received: model={model.name!r}, which is not built"
        )


def _check_options(options: dict[str, Any], kinds: set[str]) -> None:
    known = {name: kind for kind in sorted(kinds) for name in OPTIONS[kind]}
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                f"`{name}` is no option of the kinds {sorted(kinds)}. Use "
                f"one of {sorted(known)}. {did_you_mean(name, known)}"
                f"Received: {name}={value!r}"
            )
    if "mc_dropout" in kinds and "rate" not in options:
        raise ValueError(
            '`"mc_dropout"` needs a `rate`. Write, for example, `rate=0.1`. '
            "Received: rate=None"
        )


def _check_prior_from_weights(
    delta: float, prior: Any, means_from_weights: bool, kinds: set[str]
) -> None:
    check_number("prior_from_weights", delta, above=0.0)
    if kinds == {"mc_dropout"}:
        raise ValueError(
            '`prior_from_weights` needs `"mean_field"` or `"radial"` in `to`. '
            f"Received: prior_from_weights={delta}, kinds={sorted(kinds)}"
        )
    if prior is not None:
        raise ValueError(
            "`prior_from_weights` and `prior` both define the prior. Give one "
            "of the two. "
            f"Received: prior_from_weights={delta}, prior={prior!r}"
        )
    if not means_from_weights:
        raise ValueError(
            "`prior_from_weights` needs `means_from_weights=True`. "
            f"Received: prior_from_weights={delta}, means_from_weights="
            f"{means_from_weights}"
        )


# Without this bound, a weight of zero would get the standard deviation zero.
SMALLEST_STDDEV = 1e-4


def _set_prior_from_means(
    layer: Variational, delta: float, names: set[str]
) -> None:
    """Gives prior and posterior of a layer the means w and deviations (1).

    s = max(delta |w|, 1e-4)                                              (1)
    """
    chosen: dict[str, Any] = {}
    for posterior in layer.weight_posteriors:
        if posterior.name not in names:
            continue
        mean = ops.convert_to_numpy(posterior.mean)
        stddev = np.maximum(delta * np.abs(mean), SMALLEST_STDDEV)  # (1)
        posterior.rho.assign(_softplus_inverse(stddev))
        # The prior uses the rounded rho, so that KL(q || p) is exactly zero.
        q = posterior.distribution()
        chosen[posterior.name] = MeanField(q.mean, ops.sqrt(q.variance))
    layer.set_prior(**chosen)


def _softplus_inverse(x: Any) -> np.ndarray:
    x = np.asarray(x, "float64")
    return x + np.log(-np.expm1(-x))
