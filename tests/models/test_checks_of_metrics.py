"""Tests each Keras metric on each kind of output of `keras_bdl.Model`."""

import keras
import numpy as np
import pytest
from scipy.special import expit
from scipy.special import softmax

import keras_bdl as bdl
from tests.helpers import cross_entropy

RNG = np.random.default_rng(0)
LOGITS = 2.0 * RNG.normal(size=(40, 3)).astype("float32")
CLASSES = np.argmax(LOGITS + 2.0 * RNG.normal(size=(40, 3)), -1)
ONE_HOT = np.eye(3, dtype="float32")[CLASSES]
LOGIT = LOGITS[:, :1]
BITS = (LOGIT + RNG.normal(size=(40, 1)) > 0).astype("float32")
REAL = RNG.normal(size=(40, 1)).astype("float32")
NOISY = np.concatenate([LOGIT, np.exp(LOGIT)], -1)
# Metrics of single values, without targets and predictions.
OTHERS = {"Metric", "Mean", "Sum", "MeanMetricWrapper"}
NEEDED = {
    "IoU": {"num_classes": 3, "target_class_ids": [0]},
    "MeanIoU": {"num_classes": 3},
    "OneHotIoU": {"num_classes": 3, "target_class_ids": [0]},
    "OneHotMeanIoU": {"num_classes": 3},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
    "TopKCategoricalAccuracy": {"k": 2},
    "SparseTopKCategoricalAccuracy": {"k": 2},
}
METRICS = {
    name: cls
    for name, cls in vars(keras.metrics).items()
    if isinstance(cls, type) and name not in OTHERS
}
OF_CLASSES = {
    "CategoricalAccuracy",
    "CategoricalHinge",
    "F1Score",
    "FBetaScore",
    "OneHotIoU",
    "OneHotMeanIoU",
    "SparseCategoricalAccuracy",
    "SparseTopKCategoricalAccuracy",
    "TopKCategoricalAccuracy",
}
ENTROPIES_OF_CLASSES = {
    "CategoricalCrossentropy",
    "SparseCategoricalCrossentropy",
}
WRONG_ON_A_BIT = {
    *OF_CLASSES,
    *ENTROPIES_OF_CLASSES,
    "Accuracy",
    "Hinge",
    "IoU",
    "KLDivergence",
    "MeanIoU",
    "SquaredHinge",
}


def identity(outputs, model=bdl.Sequential):
    """Returns a model whose inputs are its outputs."""
    return model([keras.Input(outputs.shape[1:]), keras.layers.Identity()])


def evaluated(outputs, y, loss, metric, model=None):
    """Returns the value of a metric for given outputs, or `None` if refused."""
    model = identity(outputs) if model is None else model
    model.compile(loss=loss, metrics=[metric], run_eagerly=True)
    # The step of `evaluate`, without its data pipeline.
    batch = [keras.ops.convert_to_tensor(array) for array in (outputs, y)]
    try:
        logs = model.test_step(batch)
    except ValueError as error:
        if "Received: metric=" not in str(error):
            raise
        return None
    logs.pop("loss")
    (value,) = logs.values()
    return np.asarray(value)


def accepted(outputs, meant, y, loss, options=None):
    """Returns the names of accepted metrics, after a check of their values.

    Args:
        outputs: The outputs of the model.
        meant: The outputs in the form that Keras metrics take by default.
        y: The targets.
        loss: The compiled loss, or a function of names that returns it.
        options: Metrics to try, and their arguments. Defaults to `None`, all
            of Keras.
    """
    names = set()
    model = identity(outputs)
    for name in options or METRICS:
        cls = METRICS[name]
        targets = CLASSES if name.startswith("Sparse") and y is ONE_HOT else y
        given = options[name] if options else NEEDED.get(name, {})
        of_name = loss(name) if loss is of_classes else loss
        found = evaluated(outputs, targets, of_name, cls(**given), model)
        if found is None:
            continue
        names.add(name)
        metric = cls(**NEEDED.get(name, {}))
        # A hinge takes scores, such as logits.
        metric.update_state(targets, outputs if "Hinge" in name else meant)
        np.testing.assert_allclose(
            found, metric.result(), rtol=1e-4, err_msg=name
        )
    return names


def of_classes(name):
    if name.startswith("Sparse"):
        return cross_entropy()
    return keras.losses.CategoricalCrossentropy(from_logits=True)


def test_every_metric_of_class_logits_is_correct_or_refused():
    probabilities = softmax(LOGITS, axis=-1)
    names = accepted(LOGITS, probabilities, ONE_HOT, of_classes)
    assert names == OF_CLASSES
    told = {name: {"from_logits": True} for name in ENTROPIES_OF_CLASSES}
    told |= {"AUC": {"from_logits": True}}  # AUC applies a sigmoid
    told |= {"BinaryCrossentropy": {"from_logits": True}}
    names = accepted(LOGITS, probabilities, ONE_HOT, of_classes, told)
    assert names == ENTROPIES_OF_CLASSES


def test_every_metric_of_a_binary_logit_is_correct_or_refused():
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    hinges = {"Hinge", "SquaredHinge"}
    assert accepted(LOGIT, expit(LOGIT), BITS, loss) == hinges
    told = {
        "AUC": {"from_logits": True},
        "BinaryAccuracy": {"threshold": 0.0},
        "BinaryCrossentropy": {"from_logits": True},
        "BinaryIoU": {"threshold": 0.0},
    }
    names = accepted(LOGIT, expit(LOGIT), BITS, loss, told)
    assert names == set(told)


def test_metrics_of_classes_are_refused_on_a_probability():
    p = expit(LOGIT)
    names = accepted(p, p, BITS, "binary_crossentropy")
    assert names == set(METRICS) - WRONG_ON_A_BIT


def test_every_keras_metric_is_refused_for_predicted_noise():
    loss = bdl.likelihoods.Gaussian()
    assert accepted(NOISY, None, REAL, loss) == set()
    for name in ("mae", "mse", "r2_score"):
        assert evaluated(NOISY, REAL, loss, name) is None
    root = evaluated(
        NOISY, REAL, loss, bdl.metrics.RootMeanSquaredError(name="r")
    )
    assert root == pytest.approx(np.sqrt(np.mean((REAL - LOGIT) ** 2)))
    known = bdl.likelihoods.Gaussian(0.5)  # the outputs are means
    mae = evaluated(LOGIT, REAL, known, "mae")
    assert mae == pytest.approx(np.mean(np.abs(REAL - LOGIT)), rel=1e-5)


def test_custom_metric_with_reads_noise_is_accepted():
    def error_of_mean(y_true, y_pred):
        return keras.ops.abs(y_true - y_pred[:, :1])

    loss = bdl.likelihoods.Gaussian()
    assert evaluated(NOISY, REAL, loss, error_of_mean) is None
    error_of_mean.reads_noise = True
    found = evaluated(NOISY, REAL, loss, error_of_mean)
    assert found == pytest.approx(np.mean(np.abs(REAL - LOGIT)), rel=1e-5)


def test_each_output_has_the_metrics_of_its_own_loss():
    inputs = keras.Input((3,))
    model = bdl.Model(
        inputs,
        {
            "kind": keras.layers.Identity(name="kind")(inputs),
            "bit": keras.layers.Identity(name="bit")(inputs[:, :1]),
        },
    )
    entropy = cross_entropy()
    metric = bdl.metrics.ExpectedCalibrationError
    y = {"kind": CLASSES, "bit": BITS}

    def logs(bit):
        model.compile(
            loss={"kind": entropy, "bit": "binary_crossentropy"},
            metrics={"kind": ["accuracy", metric()], "bit": [bit]},
        )
        return model.evaluate(LOGITS, y, 40, verbose=0, return_dict=True)

    found = logs("mae")
    expected = metric(from_logits=True)
    expected.update_state(CLASSES, LOGITS)
    name = "kind_expected_calibration_error"
    assert found[name] == pytest.approx(float(expected.result()), rel=1e-5)
    with pytest.raises(ValueError, match="Received: metric='hinge'"):
        logs("hinge")


@pytest.mark.parametrize(
    "name",
    [
        "BrierScore",
        "ExpectedCalibrationError",
        "MaximumCalibrationError",
        "NegativeLogLikelihood",
        "PredictiveEntropy",
    ],
)
def test_our_metrics_read_from_logits_from_the_loss(name):
    cls = getattr(bdl.metrics, name)
    expected = cls(from_logits=True)
    expected.update_state(CLASSES, LOGITS)
    loss = cross_entropy()
    found = evaluated(LOGITS, CLASSES, loss, cls())
    assert found == pytest.approx(float(expected.result()), rel=1e-5)
    found = evaluated(
        softmax(LOGITS, axis=-1),
        CLASSES,
        "sparse_categorical_crossentropy",
        cls(),
    )
    assert found == pytest.approx(float(expected.result()), rel=1e-4)


def test_our_metrics_without_a_known_loss_need_from_logits():
    metric = bdl.metrics.ExpectedCalibrationError()
    loss = cross_entropy()
    with pytest.raises(ValueError, match=r"\(from_logits=True\)` for logits"):
        model = identity(LOGITS, keras.Sequential)
        evaluated(LOGITS, CLASSES, loss, metric, model)
    # The loss of an earlier model does not count for an unknown loss.
    assert evaluated(LOGITS, CLASSES, loss, metric) > 0
    with pytest.raises(ValueError, match="`from_logits` must be given"):
        evaluated(LOGITS, ONE_HOT, lambda y, p: p[:, 0], metric)
    with pytest.raises(ValueError, match="must agree with the compiled loss"):
        evaluated(
            LOGITS, CLASSES, loss, bdl.metrics.BrierScore(from_logits=False)
        )
