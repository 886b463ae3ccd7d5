"""Laplace approximation of a trained model."""

import functools
import math
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_bdl import _keras
from keras_bdl._aliases import Data
from keras_bdl._aliases import Loss
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_verbose
from keras_bdl._data._batches import is_arrays
from keras_bdl._data._batches import preprocessed
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl._data._dataset_size import OBSERVATIONS
from keras_bdl._data._dataset_size import POSITIONS
from keras_bdl._data._dataset_size import different_examples
from keras_bdl._laplace._fisher_information import AUTO
from keras_bdl._laplace._fisher_information import DRAWN
from keras_bdl._laplace._fisher_information import EXACT_ENTRIES
from keras_bdl._laplace._fisher_information import EXPECTED
from keras_bdl._laplace._fisher_information import FisherInformation
from keras_bdl._laplace._last_layer import FULL
from keras_bdl._laplace._scores import ScoresOfOutputs
from keras_bdl._memory import check_memory
from keras_bdl.curvature._capture import Plan
from keras_bdl.evaluation._evaluate import evaluate
from keras_bdl.evaluation._regression_report import RegressionReport
from keras_bdl.posteriors._covered_weights import excluded_variables
from keras_bdl.posteriors._gaussian import KroneckerBlock
from keras_bdl.posteriors._matrix_normal import Laplace
from keras_bdl.prediction._options import PredictOptions
from keras_bdl.prediction._posterior_samples import DEFAULT_SAMPLES
from keras_bdl.prediction._predict import predict
from keras_bdl.prediction._stateless_call import check_model

# Ways to choose the prior precision. The first two are synonyms.
MARGINAL_LIKELIHOOD, EVIDENCE = "marginal_likelihood", "evidence"
VALIDATION, WEIGHTS = "validation", "weights"
PER_LAYER = "evidence_per_layer"

# The precisions that `"validation"` compares: powers of sqrt(10).
CANDIDATES = 10.0 ** (np.arange(-4, 11) / 2)


def fit_laplace(
    model: keras.Model,
    data: Data,
    *,
    structure: str = "kronecker",
    subset: str = "last_layer",
    prior_precision: float | str | None = None,
    refinements: int = 3,
    validation_data: Data | None = None,
    labels: str = "auto",
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
        structure: `"kronecker"` or `"diagonal"`. With more than 1,024
            outputs, a last layer keeps the diagonal of its class factor, the
            Kronecker factor of the outputs. Defaults to `"kronecker"`.
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
        refinements: Number of further passes over the data of a classifier,
            or over the features of a last layer, see `labels`.
            A network that fits its training data predicts probabilities close
            to 0 and 1. F is then near zero, and the posterior is too wide. Each
            further pass computes F again, for the linearised network at samples
            of the current posterior. The passes converge to the best Gaussian
            with the mean w* for the linearised network. `0` is the classical
            Laplace approximation. Defaults to `3`.
        validation_data: Held-out `(x, y)`, or batches of such pairs, from an
            object that can be read several times. Defaults to `None`.
        labels: How to compute the expectation in (2). For a last layer that
            is a `Dense` layer or a convolution of size 1, followed by the
            activation of its loss or by none, `"auto"` and `"expected"` need
            one forward pass and no backward pass. The inputs of the layer, the
            features, stay in memory for the refinements if they fit into half
            of what is free, and are computed again if not. For other weights,
            `"expected"` is exact, with as many backward passes as the output
            has entries, and `"drawn"` estimates (2) with `label_samples`
            passes. `"auto"` is exact for up to 100 entries, and draws 32 labels
            for each example of larger outputs; it then prints the errors of the
            factors. Defaults to `"auto"`.
        label_samples: Number of labels that `"drawn"` draws for each example.
            Defaults to `1`.
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
    check_choice("labels", labels, (AUTO, EXPECTED, DRAWN))
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
        model, getattr(model, "loss", None) if loss is None else loss
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
    factored = structure == "kronecker"
    choose = functools.partial(
        _variables_and_columns,
        subset=subset,
        exclude_from_inference=exclude_from_inference,
        factored=factored,
        fallback=fallback,
    )
    if model.built:
        choose(model)  # raises an error before the first pass
    information = FisherInformation(
        model,
        variables=choose,
        scores=scores,
        labels=labels,
        label_samples=label_samples,
        factored=factored,
        fallback=fallback,
        loss=loss,
        keeps_features=refinements > 0,
    )
    posterior: Any = None
    for number in range(refinements + 1):
        information.sum_over(
            data,
            batch_size=size_of_data,
            seed=seed + number,
            verbose=verbose,
            posterior=posterior,
        )
        if dataset_size is None:
            # A pipeline may read an example several times.
            dataset_size = different_examples(data, information.examples)
            if observations == POSITIONS:
                dataset_size *= _positions(information)
        posterior = _posterior_of(
            information,
            prior_precision=prior_precision,
            temperature=temperature,
            dataset_size=dataset_size,
            before=posterior,
        )
    if information.drawn is not None and verbose:
        _print_errors(information)
    if prior_precision == VALIDATION:
        delta = _best_on_validation_data(
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


def _print_errors(information: FisherInformation) -> None:
    """Prints how far drawn labels are from the expectation."""
    errors = [100 * error for error in information.errors]
    print(
        f'`labels="auto"` drew {information.drawn} labels for each example, '
        f"because the outputs have more than {EXACT_ENTRIES} entries. The "
        f"relative errors of the factors are {min(errors):.1f} to "
        f'{max(errors):.1f} %. `labels="expected"` is exact.'
    )


def _positions(information: FisherInformation) -> int:
    if information.positions is None:
        raise ValueError(
            '`observations="positions"` needs outputs with a fixed number of '
            "positions. Give an `Input` with a fixed shape, or `dataset_size`, "
            "the number of all positions. "
            f"Received: model={information.model.name!r}"
        )
    return information.positions


def _check_data(
    data: Data,
    refinements: int,
    validation_data: Data | None,
    prior_precision: float | str,
) -> None:
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


def _variables_and_columns(
    model: keras.Model,
    *,
    subset: str,
    exclude_from_inference: str | Iterable[str],
    factored: bool,
    fallback: bool | str,
) -> tuple[list, set[int]]:
    """Returns the uncertain variables, and `id`s of kernels with a diagonal S.

    Raises an error if the sums do not fit into memory.
    """
    variables = _uncertain_variables(
        model, subset=subset, exclude_from_inference=exclude_from_inference
    )
    plan = Plan(model, fallback=fallback, variables=variables)
    matrices = [m for rule in plan.rules for m in plan.matrices(*rule)]
    last = {
        id(v)
        for layer in _last_layers(model, variables)
        for v in layer.trainable_variables
    }
    columns = {
        id(m.kernel)
        for m in matrices
        if id(m.kernel) in last and m.shape[1] > FULL
    }
    factors, others = 0, {id(v): math.prod(v.shape) for v in variables}
    for m in matrices if factored else ():
        ins, outs = m.shape
        factors += ins**2 + (outs if id(m.kernel) in columns else outs**2)
        # One sample of the weights.
        others[id(m.kernel)] = ins * outs
    check_memory(
        "The Fisher information of `model`",
        # The sums and the factors of one batch, then eigenvectors in float64.
        # The eigenvalues of a product are in float64, too.
        16 * (factors + sum(others.values())),
        'Pass `subset="last_layer"` or `structure="diagonal"`.',
    )
    return variables, columns


def _uncertain_variables(
    model: keras.Model,
    *,
    subset: str,
    exclude_from_inference: str | Iterable[str],
) -> list[Any]:
    """Returns the trainable variables that get a posterior."""
    if isinstance(exclude_from_inference, str):
        exclude_from_inference = (exclude_from_inference,)
    excluded = excluded_variables(model, exclude_from_inference)
    variables = [v for v in model.trainable_variables if id(v) not in excluded]
    if not variables:
        raise ValueError(
            "`model` must have a trainable weight outside of "
            "`exclude_from_inference`. Set `trainable=True` on a layer, or "
            f"exclude fewer layers. Received: model={model.name!r}, "
            f"exclude_from_inference={exclude_from_inference}"
        )
    if subset == "all":
        return variables
    own = {
        id(v)
        for last in _last_layers(model, variables)
        for v in last.trainable_variables
    }
    return [v for v in variables if id(v) in own]


def _last_layers(model: keras.Model, variables: list) -> list[keras.Layer]:
    """Returns the last layer with some of the variables of each output."""
    outputs = getattr(model, "outputs", None) or ()
    if len(outputs) < 2:
        return [_innermost_layer_of(model, variables[-1])]
    wanted = {id(v) for v in variables}
    found = []
    for output in outputs:
        layers = _keras.operations_before(output)
        with_weights = (
            layer
            for layer in layers
            if any(
                id(v) in wanted
                for v in getattr(layer, "trainable_variables", ())
            )
        )
        last = next(with_weights, None)
        if last is None:
            raise ValueError(
                '`subset="last_layer"` needs a layer with weights before each '
                'output. Pass `subset="all"`. '
                f"Received: model={model.name!r}, output={output.name!r}"
            )
        own = [v for v in last.trainable_variables if id(v) in wanted]
        found.append(_innermost_layer_of(model, own[-1]))
    return found


def _innermost_layer_of(model: keras.Model, variable: Any) -> keras.Layer:
    """Returns the innermost layer that owns a variable."""
    owners = [
        layer
        for layer in _keras.inner_layers(model)
        if any(v is variable for v in layer.trainable_variables)
    ]
    return min(owners, key=lambda layer: len(layer.trainable_variables))


def _posterior_of(
    information: FisherInformation,
    *,
    prior_precision: float | str,
    temperature: float,
    dataset_size: int,
    before: Laplace | None,
) -> Laplace:
    """Returns the posterior with a prior precision as the user asked.

    `"validation"` needs a search; the result has the precision of `"evidence"`.
    `before` is the posterior of the pass before, or `None`.
    """
    chosen = 1.0 if isinstance(prior_precision, str) else prior_precision
    # Scales the sums over the data to N examples.
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
            index_of[id(m.kernel)],
            None if m.bias is None else index_of[id(m.bias)],
            inputs=information.basis_of(m),
            # Only one of the two factors is scaled to N examples.
            outputs=factor * m.outputs,
            dtype="float64" if m.kernel.dtype == "float64" else "float32",
        )
        for m in information.matrices
    ]
    log_likelihood = information.log_likelihood
    if log_likelihood is not None:
        log_likelihood = factor * log_likelihood
    posterior = Laplace(
        [np.array(keras.ops.convert_to_numpy(v)) for v in trained],
        curvature,
        matrices,
        prior_precision=chosen,
        temperature=temperature,
        names=[v.name for v in trained],
        log_likelihood=log_likelihood,
    )
    if before is not None:
        posterior = posterior.between(before)
    if not isinstance(prior_precision, str):
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


def _best_of_each_layer(
    posterior: Laplace, information: FisherInformation
) -> list[float]:
    """Returns the delta of the highest evidence of the layer of each variable.

    Certain variables get 1, which has no effect.
    """
    trained = information.model.trainable_variables
    uncertain = {id(v) for v in information.variables}
    deltas = [1.0] * len(trained)
    layers: dict[int, list[int]] = {}
    for i, variable in enumerate(trained):
        if id(variable) in uncertain:
            layer = _innermost_layer_of(information.model, variable)
            layers.setdefault(id(layer), []).append(i)
    for indices in layers.values():
        delta = posterior.evidence_of(indices).maximum()
        for i in indices:
            deltas[i] = delta
    return deltas


def _best_on_validation_data(
    posterior: Laplace,
    model: keras.Model,
    data: Data,
    *,
    options: dict[str, Any],
    batch_size: int | None,
    seed: int,
    verbose: int,
) -> float:
    """Returns the candidate with the best log-likelihood on held-out data.

    All candidates use the same random numbers for their posterior samples.
    `options` are arguments of `predict`.
    """
    x, y = data, None
    if is_arrays(data):
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise ValueError(
                "`validation_data` must be `(x, y)`, or batches of such pairs. "
                f"Received: validation_data of type {type(data).__name__}"
            )
        x, y = data
    elif hasattr(data, "__next__"):
        raise ValueError(
            "`validation_data` must be data that can be read again for every "
            f"candidate. Received: validation_data={data}"
        )
    bar = keras.utils.Progbar(
        len(CANDIDATES),
        verbose=verbose,
        stateful_metrics=("prior_precision", "nll"),
        unit_name="prior",
    )
    losses = []
    for i, delta in enumerate(CANDIDATES):
        prediction = predict(
            model,
            x,
            posterior.with_prior_precision(delta),
            samples=DEFAULT_SAMPLES,
            seed=seed,
            batch_size=batch_size,
            keep_samples="task" not in options,  # for densities of numbers
            verbose=0,
            options=PredictOptions(**options),
        )
        if "moments" in options and y is not None:
            (y,) = keras.tree.flatten(y)  # `moments` makes one prediction
        reports = keras.tree.flatten(evaluate(prediction, y))
        losses.append(sum(map(_mean_nll, reports)))
        bar.update(i + 1, [("prior_precision", delta), ("nll", losses[-1])])
    best = int(np.nanargmin(losses))
    if best in (0, len(losses) - 1):
        warnings.warn(
            "The best prior precision is at the end of the search range, "
            f"{CANDIDATES[0]:g} to {CANDIDATES[-1]:g}. Try other values with "
            "`with_prior_precision`. "
            f"Received: prior_precision={CANDIDATES[best]:g}",
            stacklevel=3,
        )
    return float(CANDIDATES[best])


def _mean_nll(report: Any) -> float:
    """Returns the mean negative log-likelihood of one output."""
    if isinstance(report, RegressionReport):
        return -report.log_likelihood
    return report.nll
