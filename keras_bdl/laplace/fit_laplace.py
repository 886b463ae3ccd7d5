"""Laplace's approximation of a trained model."""

import functools

import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl.arguments import as_positive
from keras_bdl.data.checked_inputs import check_count
from keras_bdl.data.checked_inputs import check_model
from keras_bdl.laplace.fisher_information import FisherInformation
from keras_bdl.laplace.fisher_information import FisherOptions
from keras_bdl.laplace.scores_of_loss import scores_of_loss
from keras_bdl.laplace.validation import best_prior_precision
from keras_bdl.posteriors.covered_weights import excluded_variables
from keras_bdl.posteriors.laplace import Laplace
from keras_bdl.posteriors.matrix_covariance import MatrixCurvature

MARGINAL_LIKELIHOOD, EVIDENCE = "marginal_likelihood", "evidence"  # synonyms
VALIDATION = "validation"


def fit_laplace(
    model,
    data,
    structure: str = "kronecker",
    subset: str = "all",
    *,
    prior_precision: float | str,
    validation_data=None,
    labels: str = "expected",
    label_draws: int = 1,
    temperature: float = 1.0,
    dataset_size: int | None = None,
    loss=None,
    exclude_from_inference=("BatchNormalization", "LearnedStddev"),
    batch_size: int | None = None,
    fallback: bool = False,
    seed: int = 0,
    verbose="auto",
):
    """Returns Laplace's approximation of the posterior of a trained model.

    The model is an ordinary Keras model, trained as ever, with one output
    and a loss that is the mean negative log-likelihood: a cross-entropy
    or `keras_bdl.likelihoods.Gaussian`. It runs as in inference, and is
    not changed. BatchNorm statistics are constants, in F as in draws.

    A regularizer of training is a prior: `L2(c)`, of all weights, is the
    one of precision `2 c N`. It is no part of F; give that precision, if
    w* is to be the maximum of the posterior, or another and accept that the
    Gaussian stays around w*. Equations (1) to (3) are those of
    `keras_bdl.posteriors.Laplace`.

    Args:
        model: A trained Keras model.
        data: The training data: `x`, `(x, y)` or `(x, y, sample_weight)`
            of arrays (several inputs as a list or a dictionary), or a
            batched `tf.data.Dataset`, a `keras.utils.PyDataset` or a
            generator of these. Labels count for
            `log_marginal_likelihood` only. It is gone through once.
        structure: `"kronecker"` or `"diagonal"`. Defaults to
            `"kronecker"`.
        subset: Which weights are uncertain, `"all"` or those of the
            `"last_layer"`, the last that has any; all others stay as they
            are. Defaults to `"all"`.
        prior_precision: delta; `"evidence"` or `"marginal_likelihood"`,
            the one that maximises `log_marginal_likelihood`; or
            `"validation"`, the power of the root of 10 with the best
            log-likelihood of `keras_bdl.predict` on `validation_data`.
            Where a network fits all its data, F is near zero, draws are
            as wide as delta says, and `"evidence"` leaves them too wide
            to predict well.
        validation_data: Held-out `(x, y)`, or such batches that can be
            read again. Defaults to `None`.
        labels: `"expected"`, (2) as it is, by as many backward passes as
            the output has entries; or `"drawn"`, an estimate by
            `label_draws` passes. Defaults to `"expected"`.
        label_draws: How many labels are drawn for each example. Defaults
            to `1`.
        temperature: T. Defaults to `1.0`.
        dataset_size: N, if `data` is a part of the training data. Defaults
            to `None`, counted.
        loss: The negative log-likelihood, as `compile` takes it. Defaults
            to `None`, the one that the model is compiled with.
        exclude_from_inference: Names of layers, of classes of layers or
            of variables that stay as they are. Defaults to
            `("BatchNormalization", "LearnedStddev")`.
        batch_size: For arrays. Defaults to `None`, 32.
        fallback: Whether layers that `keras_bdl.curvature` has no rule
            for are differentiated example by example, which is slow.
            Defaults to `False`, where they are an error.
        seed: Selects the drawn labels and the draws of validation.
            Defaults to `0`.
        verbose: `0` for silence, `1` for a progress bar, `2` for one
            line. Defaults to `"auto"`, `1`.

    Returns:
        A `keras_bdl.posteriors.Laplace`.

    Example:

    ```python
    posterior = keras_bdl.fit_laplace(
        model, (x, y), prior_precision="marginal_likelihood"
    )
    prediction = keras_bdl.predict(model, x_test, posterior=posterior)
    ```

    Reference:
        - MacKay, [A Practical Bayesian Framework for Backpropagation
          Networks](https://doi.org/10.1162/neco.1992.4.3.448)
        - Ritter et al., [A Scalable Laplace Approximation for Neural
          Networks](https://openreview.net/forum?id=Skdvd2xAZ), whose
          damping goes to each factor, and here to their product
        - Maddox et al., [A Simple Baseline for Bayesian Uncertainty in
          Deep Learning](https://arxiv.org/abs/1902.02476), "KFAC-Laplace"
    """
    check_model(model)
    _check_choice("structure", structure, ("kronecker", "diagonal"))
    _check_choice("subset", subset, ("all", "last_layer"))
    _check_choice("labels", labels, ("expected", "drawn"))
    _check_choice("verbose", verbose, ("auto", 0, 1, 2))
    check_count("label_draws", label_draws)
    if isinstance(prior_precision, str):
        known = (MARGINAL_LIKELIHOOD, EVIDENCE, VALIDATION)
        _check_choice("prior_precision", prior_precision, known)
    else:
        as_positive("prior_precision", prior_precision)
    as_positive("temperature", temperature)
    if dataset_size is not None:
        check_count("dataset_size", dataset_size)
    if (validation_data is not None) != (prior_precision == VALIDATION):
        raise ValueError(
            "`validation_data` must be given where `prior_precision` is "
            '"validation", and only there. Received: '
            f"prior_precision={prior_precision!r}, validation_data of type "
            f"{type(validation_data).__name__}"
        )
    verbose = 1 if verbose == "auto" else verbose
    scores = scores_of_loss(
        getattr(model, "loss", None) if loss is None else loss
    )
    variables_of = functools.partial(
        uncertain_variables,
        subset=subset,
        exclude_from_inference=exclude_from_inference,
    )
    information = FisherInformation.of(
        model,
        data,
        lambda model: FisherOptions(
            loss=loss,
            scores=scores,
            label_draws=label_draws if labels == "drawn" else None,
            variables=variables_of(model),
            factored=structure == "kronecker",
            fallback=fallback,
        ),
        batch_size,
        seed,
        verbose,
    )
    posterior = _posterior(
        model,
        information,
        variables_of(model),
        1.0 if isinstance(prior_precision, str) else prior_precision,
        temperature,
        dataset_size,
    )
    if prior_precision in (MARGINAL_LIKELIHOOD, EVIDENCE):
        delta = posterior.evidence.maximum()
        return posterior.with_prior_precision(delta)
    if prior_precision == VALIDATION:
        delta = best_prior_precision(
            posterior,
            model,
            validation_data,
            scores.options(),
            batch_size,
            seed,
            verbose,
        )
        return posterior.with_prior_precision(delta)
    return posterior


def _posterior(
    model, information, variables, prior_precision, temperature, size
):
    """Returns the posterior of sums over the data, scaled to all data."""
    factor = 1.0 if size is None else size / information.examples
    trained = model.trainable_variables
    index_of = {id(v): i for i, v in enumerate(trained)}
    curvature = [None] * len(trained)
    for variable, squares in zip(variables, information.squares, strict=True):
        if squares is not None:
            curvature[index_of[id(variable)]] = factor * squares
    matrices = [
        MatrixCurvature.of_factors(
            index_of[id(kernel)],
            None if bias is None else index_of[id(bias)],
            inputs / information.weight,
            # The number of examples multiplies one of the factors.
            factor * outputs,
            dtype=kernel.dtype if kernel.dtype == "float64" else "float32",
        )
        for kernel, bias, inputs, outputs in information.matrices
    ]
    log_likelihood = information.log_likelihood
    return Laplace(
        [np.array(ops.convert_to_numpy(v)) for v in trained],
        curvature,
        matrices,
        prior_precision,
        temperature,
        names=[v.name for v in trained],
        log_likelihood=None
        if log_likelihood is None
        else factor * log_likelihood,
    )


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {choices}. Received: {name}={value!r}"
        )


def uncertain_variables(model, subset: str, exclude_from_inference):
    """Returns the trainable variables that have a posterior.

    Args:
        model: A built Keras model.
        subset: `"all"`, or `"last_layer"`.
        exclude_from_inference: Names of layers, classes of layers or
            variables that have none.
    """
    if isinstance(exclude_from_inference, str):
        exclude_from_inference = (exclude_from_inference,)
    excluded = excluded_variables(model, exclude_from_inference)
    variables = [v for v in model.trainable_variables if id(v) not in excluded]
    if not variables:
        raise ValueError(
            "`model` must have trainable weights that are not excluded from "
            f"inference. Received: model={model.name!r}, "
            f"exclude_from_inference={exclude_from_inference}"
        )
    if subset == "all":
        return variables
    last = _innermost_layer_of(model, variables[-1])
    own = {id(v) for v in last.trainable_variables}
    return [v for v in variables if id(v) in own]


def _innermost_layer_of(model, variable):
    """Returns the layer that owns a variable, and not one around it."""
    owners = [
        layer
        for layer in _keras.inner_layers(model)
        if any(v is variable for v in layer.trainable_variables)
    ]
    return min(owners, key=lambda layer: len(layer.trainable_variables))
