"""Reports on a finished prediction."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras

from keras_bdl._aliases import ArrayLike
from keras_bdl._data._checked_inputs import check_classification
from keras_bdl.evaluation._classification_report import ClassificationReport
from keras_bdl.evaluation._ranking import FRACTIONS
from keras_bdl.evaluation._regression_report import LEVELS
from keras_bdl.evaluation._regression_report import RegressionReport
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction
from keras_bdl.prediction._outputs import per_output
from keras_bdl.prediction._predictions import Prediction


def evaluate(
    prediction: Prediction | Mapping[str, Prediction] | Sequence[Prediction],
    y: Any = None,
    *,
    ood: ClassificationPrediction
    | Mapping[str, ClassificationPrediction]
    | None = None,
    scores: Mapping[str, tuple[ArrayLike, Any]] | None = None,
    shift: Mapping[str, Any] | None = None,
    num_bins: int = 20,
    fractions: Sequence[float] = FRACTIONS,
    uncertainty: str = "mutual_information",
    levels: Sequence[float] = LEVELS,
) -> Any:
    """Returns a report that compares a prediction with the labels.

    Use this function after `keras_bdl.predict` to see accuracy, calibration
    and the quality of the uncertainty in one table.

    Each label, token or pixel that counts has the same weight. Padding, where
    `prediction.mask` is `False`, and labels of the `ignore_class` of the
    compiled loss do not count. Keras has the same mean in its metrics. The
    loss in `model.evaluate` is the mean over the batches instead, which
    differs if batches have unequal numbers of such labels.

    Args:
        prediction: A `ClassificationPrediction` or `RegressionPrediction`,
            from `keras_bdl.predict`. For a model with several outputs, the
            dictionary or list of predictions.
        y: Labels: integers or one-hot rows of classes, or real targets. For
            several outputs, the labels in the same structure. Defaults to
            `None`, the labels that `keras_bdl.predict` found in the data.
        ood: For a classifier, the prediction of the same model for
            out-of-distribution inputs, or a dict of several such predictions
            by name. Defaults to `None`.
        scores: For a classifier with `ood`, a dict from the name of a further
            score to a pair: one number for each input, high for unknown
            inputs, and the same for `ood`, as one array or a dict by name.
            Use it for `energy_score`, `max_logit_score` and `FeatureDensity`
            in `keras_bdl.evaluation`. Defaults to `None`.
        shift: Predictions of the same model for the same inputs after a
            corruption, by the name of the corruption. An entry is a dict from
            the severity to a prediction, a list for the severities 1, 2, ...,
            or one prediction, whose severity is the number at the end of the
            name, as in `"rotation 30"`, or 1. The labels are those in the data
            of the shifted prediction, or `y`. Defaults to `None`.
        num_bins: For a classifier, the number of bins of the calibration
            errors and of the parts of the Brier score. Defaults to `20`.
        fractions: For a classifier, the fractions of the inputs that are
            referred to an expert. Defaults to `(0.0, 0.1, 0.2, 0.3)`.
        uncertainty: For a classifier, the measure that selects the referred
            inputs: `"mutual_information"`, `"entropy"` or
            `"max_probability"`. A prediction from a single sample has no
            mutual information; the report then uses the entropy and names it
            as the measure. Defaults to `"mutual_information"`.
        levels: For a regression, the probabilities of the intervals whose
            coverage is reported. Defaults to `(0.5, 0.9, 0.95)`.

    Returns:
        A `ClassificationReport` or `RegressionReport`. Read its numbers as
        attributes, with `report["nll"]` or `report.to_dict()`, or print it.
        For several outputs, a report for each, in the same structure.

    Example:

    ```python
    unknown = keras_bdl.predict(model, 9.0 * x_test, posterior)
    smaller = [
        keras_bdl.predict(model, factor * x_test, posterior)
        for factor in (0.5, 0.25)
    ]
    report = keras_bdl.evaluate(
        prediction, y_test, ood={"far": unknown}, shift={"smaller": smaller}
    )
    print(report)
    report.ood["far"]["entropy"]["auroc"]
    report.shift["smaller"]["nll"]
    ```
    """
    if isinstance(prediction, (dict, list, tuple)):
        return _of_outputs(
            prediction,
            y,
            {"ood": ood, "scores": scores, "shift": shift},
            num_bins=num_bins,
            fractions=fractions,
            uncertainty=uncertainty,
            levels=levels,
        )
    if isinstance(prediction, RegressionPrediction):
        given = {"ood": ood, "scores": scores}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"`{name}` must be `None` for a regression. Only a "
                    "prediction of classes has the scores to compare. "
                    f"Received: {name}={value}"
                )
        return RegressionReport.from_prediction(
            prediction, y, shift=shift, levels=levels
        )
    check_classification("prediction", prediction)
    if ood is None:
        ood = {}
    sets = dict(ood) if isinstance(ood, Mapping) else {"ood": ood}
    for name, other in sets.items():
        check_classification(f"ood[{name!r}]", other)
    return ClassificationReport.from_prediction(
        prediction,  # type: ignore[arg-type]  # its task was checked
        y,
        ood=sets,
        further=_by_set(scores or {}, sets, isinstance(ood, Mapping)),
        shift=shift,
        num_bins=num_bins,
        fractions=fractions,
        uncertainty=uncertainty,
    )


def _of_outputs(
    predictions: Any, y: Any, of_one_output: dict[str, Any], **options: Any
) -> Any:
    """Returns a report for each output, in the structure of the outputs."""
    for name, value in of_one_output.items():
        if value is not None:
            raise ValueError(
                f"`{name}` needs the prediction of one output. Call `evaluate` "
                "with each output in turn. "
                f"Received: {name}={value!r} and {len(predictions)} outputs"
            )
    labels = per_output("y", y, predictions)
    if len(labels) > 1 and y is not None and labels[0] is y:
        raise ValueError(
            "`y` must have the structure of `prediction`, such as a dictionary "
            "with the labels of each output. "
            f"Received: y of type {type(y).__name__}"
        )
    reports = [
        evaluate(*pair, **options)
        for pair in zip(keras.tree.flatten(predictions), labels, strict=True)
    ]
    return keras.tree.pack_sequence_as(predictions, reports)


def _by_set(
    scores: Mapping[str, tuple[ArrayLike, Any]],
    sets: dict[str, ClassificationPrediction],
    named: bool,
) -> dict[str, dict]:
    """Returns the pairs of `scores` for each set of `ood`."""
    found: dict[str, dict] = {name: {} for name in sets}
    for score, pair in scores.items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                f"`scores[{score!r}]` must be a pair: the scores of the inputs "
                "of `prediction`, and the scores of `ood`. "
                f"Received: {type(pair).__name__}"
            )
        inside, outside = pair
        if not named and sets:
            outside = {"ood": outside}
        if not isinstance(outside, Mapping) or set(outside) != set(sets):
            names = list(outside) if isinstance(outside, Mapping) else "no dict"
            raise ValueError(
                f"`scores[{score!r}]` must have an entry for each set in "
                f"`ood`, {list(sets)}. Received: {names}"
            )
        for name, values in outside.items():
            found[name][score] = inside, values
    return found
