"""The posterior made of Fisher information."""

import keras
import numpy as np

from keras_bdl.laplace._fisher_information import FisherInformation
from keras_bdl.laplace._uncertain_variables import innermost_layer_of
from keras_bdl.posteriors._kronecker_block import KroneckerBlock
from keras_bdl.posteriors._laplace import Laplace

# Ways to choose the prior precision. The first two are synonyms.
MARGINAL_LIKELIHOOD, EVIDENCE = "marginal_likelihood", "evidence"
VALIDATION, WEIGHTS = "validation", "weights"
PER_LAYER = "evidence_per_layer"


def posterior_of_fisher(
    information: FisherInformation,
    *,
    prior_precision: float | str,
    temperature: float,
    dataset_size: int | None,
    before: Laplace | None = None,
) -> Laplace:
    """Returns the posterior with a prior precision as the user asked.

    Args:
        information: The sums over the data.
        prior_precision: delta, or the way to choose delta. `"validation"` needs
            a search; the result has the precision of `"evidence"`.
        temperature: T.
        dataset_size: N. `None` means the number of examples in the data.
        before: The posterior of the pass before. Defaults to `None`.
    """
    is_number = not isinstance(prior_precision, str)
    posterior = _posterior(
        information,
        prior_precision=prior_precision if is_number else 1.0,
        temperature=temperature,
        dataset_size=dataset_size,
    )
    if before is not None:
        posterior = posterior.between(before)
    if is_number:
        return posterior
    if prior_precision == PER_LAYER:
        deltas = _best_of_each_layer(posterior, information)
        return posterior.with_prior_precision(deltas)
    evidence = posterior.evidence
    return posterior.with_prior_precision(
        evidence.prior_of_weights()
        if prior_precision == WEIGHTS
        else evidence.maximum()
    )


def _best_of_each_layer(posterior, information):
    """Returns the delta of the highest evidence of the layer of each variable.

    Certain variables get 1, which has no effect.
    """
    trained = information.model.trainable_variables
    uncertain = {id(v) for v in information.variables}
    deltas = [1.0] * len(trained)
    layers: dict[int, list[int]] = {}
    for i, variable in enumerate(trained):
        if id(variable) in uncertain:
            layer = innermost_layer_of(information.model, variable)
            layers.setdefault(id(layer), []).append(i)
    for indices in layers.values():
        delta = posterior.evidence_of(indices).maximum()
        for i in indices:
            deltas[i] = delta
    return deltas


def _posterior(information, *, prior_precision, temperature, dataset_size):
    """Returns the posterior, with the sums over data scaled to N examples."""
    factor = 1.0
    if dataset_size is not None:
        factor = dataset_size / information.examples
    trained = information.model.trainable_variables
    index_of = {id(v): i for i, v in enumerate(trained)}
    curvature: list[np.ndarray | None] = [None] * len(trained)
    for variable, squares in zip(
        information.variables, information.squares, strict=True
    ):
        if squares is not None:
            curvature[index_of[id(variable)]] = factor * squares
    matrices = [
        KroneckerBlock.of_factors(
            index_of[id(kernel)],
            None if bias is None else index_of[id(bias)],
            inputs=inputs / information.weight,
            # Only one of the two factors is scaled to N examples.
            outputs=factor * outputs,
            dtype=kernel.dtype if kernel.dtype == "float64" else "float32",
        )
        for kernel, bias, inputs, outputs in information.matrices
    ]
    log_likelihood = information.log_likelihood
    if log_likelihood is not None:
        log_likelihood = factor * log_likelihood
    return Laplace(
        [np.array(keras.ops.convert_to_numpy(v)) for v in trained],
        curvature,
        matrices,
        prior_precision=prior_precision,
        temperature=temperature,
        names=[v.name for v in trained],
        log_likelihood=log_likelihood,
    )
