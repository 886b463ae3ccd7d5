"""One call from a finished prediction to its report."""

from keras_bdl.data.checked_inputs import check_classification
from keras_bdl.evaluation.classification_report import ClassificationReport
from keras_bdl.evaluation.referral import FRACTIONS
from keras_bdl.evaluation.regression_report import LEVELS
from keras_bdl.evaluation.regression_report import RegressionReport
from keras_bdl.prediction import RegressionPrediction
from keras_bdl.reports.report import Report


def evaluate(
    prediction,
    y=None,
    ood=None,
    *,
    num_bins: int = 20,
    fractions=FRACTIONS,
    uncertainty: str = "mutual_information",
    levels=LEVELS,
) -> Report:
    """Compares a prediction with the truth.

    Args:
        prediction: A `ClassificationPrediction` or `RegressionPrediction`,
            from `keras_bdl.predict`.
        y: Labels: integers or one-hot rows of classes, or real targets.
            Defaults to `None`, the labels that `keras_bdl.predict` found in
            the data.
        ood: For classification, the prediction of the same model for inputs
            from elsewhere, or a dict of several by name. Defaults to `None`.
        num_bins: For classification, the number of bins of the calibration
            errors and of the parts of the Brier score. Defaults to `20`.
        fractions: For classification, the shares of the inputs that are
            referred. Defaults to `(0.0, 0.1, 0.2, 0.3)`.
        uncertainty: For classification, what is referred first:
            `"mutual_information"` (a prediction of a single draw has none;
            its entropy is used, and the report says so), `"entropy"` or
            `"max_probability"`. Defaults to `"mutual_information"`.
        levels: For regression, the probabilities of the intervals whose
            coverage is counted. Defaults to `(0.5, 0.9, 0.95)`.

    Returns:
        A `ClassificationReport` or `RegressionReport`: numbers as attributes,
        `report["nll"]`, `report.to_dict()`, and a table when printed.

    Example:

    ```python
    p = keras_bdl.predict(model, x_test, posterior=swag.posterior)
    report = keras_bdl.evaluate(p, y_test, ood={"svhn": p_svhn})
    print(report)
    report.ood["svhn"]["entropy"]["auroc"]
    ```
    """
    if isinstance(prediction, RegressionPrediction):
        if ood is not None:
            raise ValueError(
                "`ood` must be `None` for a regression; the entropies that it "
                f"compares are those of classes. Received: ood={ood}"
            )
        return RegressionReport.from_prediction(prediction, y, levels)
    check_classification("prediction", prediction)
    ood = {} if ood is None else ood
    if not isinstance(ood, dict):
        ood = {"ood": ood}
    for name, other in ood.items():
        check_classification(f"ood[{name!r}]", other)
    return ClassificationReport.from_prediction(
        prediction, y, ood, num_bins, fractions, uncertainty
    )
