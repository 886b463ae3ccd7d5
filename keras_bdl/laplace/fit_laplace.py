"""Laplace's approximation of a trained model."""

import functools

import numpy as np
from keras import ops

from keras_bdl.laplace.fisher_information import FisherInformation
from keras_bdl.laplace.fisher_information import FisherOptions
from keras_bdl.laplace.scores_of_loss import scores_of_loss
from keras_bdl.laplace.uncertain_variables import uncertain_variables
from keras_bdl.laplace.validation import best_prior_precision
from keras_bdl.posteriors.arguments import as_positive
from keras_bdl.posteriors.matrix_curvature import MatrixCurvature
from keras_bdl.prediction.checked_inputs import check_count
from keras_bdl.prediction.checked_inputs import check_model

MARGINAL_LIKELIHOOD, EVIDENCE = "marginal_likelihood", "evidence"  # synonyms
VALIDATION = "validation"


def fit(
    cls,
    model,
    data,
    *,
    structure,
    subset,
    prior_precision,
    validation_data,
    labels,
    label_draws,
    temperature,
    dataset_size,
    loss,
    exclude_from_inference,
    batch_size,
    fallback,
    seed,
    verbose,
):
    """Does what `keras_bdl.posteriors.Laplace.fit` says.

    Args:
        cls: The class of the posterior.
        model: As there, like all that follow.
        data: The training data.
        structure: That of the curvature.
        subset: Which weights are uncertain.
        prior_precision: A number, or how to find one.
        validation_data: Held-out data.
        labels: How to take the expectation over labels.
        label_draws: Drawn labels for each example.
        temperature: T.
        dataset_size: N.
        loss: The negative log-likelihood.
        exclude_from_inference: Names of weights that stay.
        batch_size: For arrays.
        fallback: Whether layers need no rule.
        seed: Of labels and draws.
        verbose: Of the progress bar.
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
        cls,
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
    cls, model, information, variables, prior_precision, temperature, size
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
    return cls(
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
