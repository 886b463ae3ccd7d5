"""Laplace approximation of a trained model."""

import functools
from collections.abc import Iterable

import keras

from keras_bdl._aliases import Data
from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_verbose
from keras_bdl._data._batches import preprocessed
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl._data._dataset_size import OBSERVATIONS
from keras_bdl._data._dataset_size import POSITIONS
from keras_bdl._data._dataset_size import different_examples
from keras_bdl.laplace._factor_memory import check_memory_of_factors
from keras_bdl.laplace._fisher_information import FisherInformation
from keras_bdl.laplace._fisher_information import FisherOptions
from keras_bdl.laplace._posterior_of_fisher import EVIDENCE
from keras_bdl.laplace._posterior_of_fisher import MARGINAL_LIKELIHOOD
from keras_bdl.laplace._posterior_of_fisher import PER_LAYER
from keras_bdl.laplace._posterior_of_fisher import VALIDATION
from keras_bdl.laplace._posterior_of_fisher import WEIGHTS
from keras_bdl.laplace._posterior_of_fisher import posterior_of_fisher
from keras_bdl.laplace._scores_of_outputs import ScoresOfOutputs
from keras_bdl.laplace._uncertain_variables import uncertain_variables
from keras_bdl.laplace._validation import best_prior_precision
from keras_bdl.posteriors._laplace_gaussian import Laplace
from keras_bdl.prediction._stateless_call import check_model


def fit_laplace(
    model: keras.Model,
    data: Data,
    *,
    structure: str = "kronecker",
    subset: str = "last_layer",
    prior_precision: float | str | None = None,
    refinements: int = 3,
    validation_data: Data | None = None,
    labels: str = "expected",
    label_samples: int = 1,
    temperature: float = 1.0,
    dataset_size: int | None = None,
    observations: str | None = None,
    loss: Loss | None = None,
    exclude_from_inference: str | Iterable[str] = (
        "BatchNormalization",
        "LearnedStddev",
    ),
    batch_size: int | None = None,
    fallback: bool | str = "auto",
    seed: int = 0,
    verbose: str | int = "auto",
) -> Laplace:
    """Returns the Laplace approximation of the posterior of a trained model.

    Use this function to get uncertainty from a network without training it
    again. The network is an ordinary Keras model. The loss of each output must
    be a mean negative log-likelihood: a cross-entropy, the Poisson loss or
    `keras_bdl.likelihoods.Gaussian`. The model runs as in inference and does
    not change. BatchNorm statistics count as constants.

    A regularizer in training is a prior: `L2(c)` on all weights is a prior of
    precision `2 c N`. The Fisher information F contains no regularizer. Pass
    `prior_precision=2 * c * N` to use the prior of training. With another
    precision, the Gaussian is still centred at the trained weights w*.
    `keras_bdl.posteriors.Laplace` defines F and equations (1) to (3).

    Args:
        model: A trained Keras model.
        data: The training data: arrays, data frames or sparse matrices `x`,
            `(x, y)` or `(x, y, sample_weight)` (several inputs as a list or a
            dictionary), or a batched `tf.data.Dataset`, a
            `keras.utils.PyDataset` or a generator of such batches. Only
            `log_marginal_likelihood` uses the labels. Data that can be read
            once need `refinements=0`.
        structure: `"kronecker"` or `"diagonal"`. Defaults to
            `"kronecker"`.
        subset: The weights that get a posterior: `"all"`, or `"last_layer"` for
            those of the last layer with weights, or of the last layer before
            each output. All other weights keep their trained values. A
            prediction for the last layer costs little more than one forward
            pass. Defaults to `"last_layer"`.
        prior_precision: delta, a number or the way to choose delta.
            `"evidence"` and `"marginal_likelihood"` both choose the maximum of
            `log_marginal_likelihood`. `"evidence_per_layer"` does the same with
            one delta for each layer. `"weights"` chooses d / |w*|^2 for d
            weights: the prior then fits the trained weights themselves.
            `"validation"` chooses the power of `sqrt(10)` with the best
            log-likelihood of `keras_bdl.predict` on `validation_data`.
            Defaults to `None`: `"evidence"` for the last layer, and
            `"weights"` for all weights. The data determine few weights of a
            whole network, and the others stay close to their initial values.
            The evidence expects these weights at zero, so its prior is too
            wide.
        refinements: Number of further passes over the data of a classifier.
            A network that fits its training data predicts probabilities close
            to 0 and 1. F is then near zero, and the posterior is too wide. Each
            further pass computes F again, for the linearised network at samples
            of the current posterior. The passes converge to the best Gaussian
            with the mean w* for the linearised network. `0` is the classical
            Laplace approximation. Defaults to `3`.
        validation_data: Held-out `(x, y)`, or batches of such pairs, from an
            object that can be read several times. Defaults to `None`.
        labels: `"expected"` computes (2) exactly, with as many backward
            passes as the output has entries. `"drawn"` estimates (2) with
            `label_samples` passes. Defaults to `"expected"`.
        label_samples: Number of labels drawn for each example. Defaults
            to `1`.
        temperature: T. The likelihood is raised to the power 1 / T, and the
            prior stays as it is. Defaults to `1.0`.
        dataset_size: N, if `data` is only a part of the training data. Defaults
            to `None`: the function counts the examples. Examples that a
            pipeline repeats count once.
        observations: What N counts: `"examples"`, or `"positions"` such as the
            tokens of sequences, see `keras_bdl.Model.compile`. Defaults to
            `None`: what `compile` says, and `"examples"` for a model of Keras.
        loss: The negative log-likelihood, as in `compile`. Defaults to
            `None`, the compiled loss.
        exclude_from_inference: Names of layers, of layer classes or of
            variables. These weights keep their trained values. Defaults to
            `("BatchNormalization", "LearnedStddev")`.
        batch_size: Batch size for arrays. Defaults to `None`, 32.
        fallback: What to do with layers that have no rule. `True`
            differentiates them separately for each example, which is slow and
            takes memory. `"auto"` does so for small layers, with a warning, and
            raises an error for large ones. `False` raises an error. Defaults to
            `"auto"`.
        seed: Selects the drawn labels and the posterior samples of the
            validation. Defaults to `0`.
        verbose: `0` for silence, `1` for a progress bar, `2` for one
            line. Defaults to `"auto"`, `1`.

    Returns:
        A `keras_bdl.posteriors.Laplace`.

    Example:

    ```python
    posterior = keras_bdl.fit_laplace(model, (x, y), verbose=0)
    prediction = keras_bdl.predict(model, x_test, posterior)
    ```

    Reference:
        - Opper and Archambeau, [The Variational Gaussian Approximation
          Revisited](https://doi.org/10.1162/neco.2008.08-07-592): the
          curvature of the best Gaussian is its average over the Gaussian
        - MacKay, [A Practical Bayesian Framework for Backpropagation
          Networks](https://doi.org/10.1162/neco.1992.4.3.448)
        - Ritter et al., [A Scalable Laplace Approximation for Neural
          Networks](https://openreview.net/forum?id=Skdvd2xAZ); they add damping
          to each factor, and this function adds delta to the product
        - Maddox et al., [A Simple Baseline for Bayesian Uncertainty in
          Deep Learning](https://arxiv.org/abs/1902.02476), "KFAC-Laplace"
    """
    check_model(model)
    check_choice("structure", structure, ("kronecker", "diagonal"))
    check_choice("subset", subset, ("all", "last_layer"))
    check_choice("labels", labels, ("expected", "drawn"))
    check_count("label_samples", label_samples)
    if prior_precision is None:
        prior_precision = EVIDENCE if subset == "last_layer" else WEIGHTS
    if isinstance(prior_precision, str):
        known = (MARGINAL_LIKELIHOOD, EVIDENCE, PER_LAYER, WEIGHTS, VALIDATION)
        check_choice("prior_precision", prior_precision, known)
    else:
        check_number("prior_precision", prior_precision, above=0.0)
    check_number("temperature", temperature, above=0.0)
    check_count("refinements", refinements, at_least=0)
    scores = ScoresOfOutputs(
        getattr(model, "loss", None) if loss is None else loss
    )
    if prior_precision == VALIDATION and loss is not None:
        scores.check_validation()
    if not scores.depends_on_outputs:
        refinements = 0
    if dataset_size is not None:
        check_count("dataset_size", dataset_size)
    if observations is None:
        observations = getattr(model, "observations", EXAMPLES)
    check_choice("observations", observations, OBSERVATIONS)
    _check_data(data, refinements, validation_data, prior_precision)
    verbose = check_verbose(verbose)
    data, size_of_data = preprocessed(model, data, batch_size, labelled=True)
    variables_of = functools.partial(
        uncertain_variables,
        subset=subset,
        exclude_from_inference=exclude_from_inference,
    )
    if model.built and structure == "kronecker":
        check_memory_of_factors(model, variables_of(model), fallback=fallback)
    one_pass = functools.partial(
        FisherInformation.of,
        model,
        data,
        options=lambda model: FisherOptions(
            loss=loss,
            scores=scores,
            label_samples=label_samples if labels == "drawn" else None,
            variables=variables_of(model),
            factored=structure == "kronecker",
            fallback=fallback,
        ),
        batch_size=size_of_data,
        verbose=verbose,
    )
    information = one_pass(seed=seed)
    if dataset_size is None:
        # A pipeline may read an example several times.
        dataset_size = different_examples(data, information.examples)
        if observations == POSITIONS:
            dataset_size *= _positions(information)
    posterior_of = functools.partial(
        posterior_of_fisher,
        prior_precision=prior_precision,
        temperature=temperature,
        dataset_size=dataset_size,
    )
    posterior = posterior_of(information)
    for number in range(1, refinements + 1):
        information = one_pass(
            seed=seed + number, posterior=posterior, before=information
        )
        posterior = posterior_of(information, before=posterior)
    if prior_precision == VALIDATION:
        delta = best_prior_precision(
            posterior,
            model,
            validation_data,
            options=scores.options(),
            batch_size=batch_size,
            seed=seed,
            verbose=verbose,
        )
        posterior = posterior.with_prior_precision(delta)
    return posterior.beside_frozen_weights_of(model)


def _positions(information):
    if information.positions is None:
        raise ValueError(
            '`observations="positions"` needs outputs with a fixed number of '
            "positions. Give an `Input` with a fixed shape, or `dataset_size`, "
            "the number of all positions. "
            f"Received: model={information.model.name!r}"
        )
    return information.positions


def _check_data(data, refinements, validation_data, prior_precision):
    """Raises an error for data that do not fit the other arguments."""
    if refinements and hasattr(data, "__next__"):
        raise ValueError(
            "`data` must be data that can be read again, because each "
            "refinement reads all of it. Pass `refinements=0` for data that "
            f"can be read once. Received: refinements={refinements}, "
            f"data={data}"
        )
    if (validation_data is not None) != (prior_precision == VALIDATION):
        raise ValueError(
            "`validation_data` must be given if and only if "
            '`prior_precision="validation"`. Received: '
            f"prior_precision={prior_precision!r}, validation_data of type "
            f"{type(validation_data).__name__}"
        )
