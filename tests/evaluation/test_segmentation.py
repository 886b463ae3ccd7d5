"""Scores of pixels, added up batch by batch."""

import keras
import numpy as np
import pytest
from sklearn import metrics

import keras_bdl as bdl
from keras_bdl.evaluation import SegmentationScores
from keras_bdl.evaluation._calibration import calibration_errors
from keras_bdl.prediction import ClassificationPrediction

IMAGES, SIZE, CLASSES, VOID = 9, (4, 5), 3, 255
RNG = np.random.default_rng(0)


def predicted(images=IMAGES, classes=CLASSES):
    """Posterior samples of the probabilities, and their average."""
    logits = 2 * RNG.normal(size=(4, images, *SIZE, classes))
    samples = np.exp(logits)
    samples /= samples.sum(-1, keepdims=True)
    mean = samples.mean(0)
    prediction = ClassificationPrediction(
        np.log(mean),
        expected_entropy=-(samples * np.log(samples)).sum(-1).mean(0),
        num_samples=4,
    )
    y = RNG.integers(0, classes, (images, *SIZE))
    # Half of the pixels are right.
    right = RNG.random(y.shape) < 0.5
    return prediction, np.where(right, mean.argmax(-1), y)


def part(prediction, rows):
    return ClassificationPrediction(
        prediction.log_mean[rows],
        expected_entropy=prediction.expected_entropy[rows],
        num_samples=4,
    )


def test_scores_are_those_of_all_pixels_that_count():
    prediction, y = predicted()
    y[RNG.random(y.shape) < 0.2] = VOID
    y[4] = VOID  # an image without a pixel that counts
    scores = SegmentationScores(ignore_class=VOID, num_bins=10)
    for rows in (slice(0, 2), slice(2, 5), slice(5, 9)):
        scores.add(part(prediction, rows), y[rows])
    report = scores.report()
    kept = y != VOID
    p, labels = prediction.mean[kept], y[kept]
    classes = p.argmax(-1)
    assert (report.num_images, report.num_pixels) == (8, kept.sum())
    assert report.accuracy == pytest.approx(np.mean(classes == labels))
    assert report.nll == pytest.approx(metrics.log_loss(labels, p))
    brier = ((p - np.eye(CLASSES)[labels]) ** 2).sum(-1).mean()
    assert report.brier == pytest.approx(brier)
    assert report.ece == pytest.approx(
        calibration_errors(p.max(-1), classes == labels, num_bins=10)[0]
    )
    np.testing.assert_allclose(
        report.per_class["iou"],
        metrics.jaccard_score(labels, classes, average=None),
    )
    np.testing.assert_allclose(
        report.per_class["recall"],
        metrics.recall_score(labels, classes, average=None),
    )
    of_keras = keras.metrics.MeanIoU(CLASSES)
    of_keras.update_state(labels, classes)
    assert report.mean_iou == pytest.approx(float(of_keras.result()), rel=1e-6)
    for name in ("entropy", "expected_entropy", "mutual_information"):
        mean = getattr(prediction, name)[kept].mean()
        assert report[name] == pytest.approx(mean)
    assert "mean IoU" in str(report)


@pytest.mark.parametrize("measure", ["mutual_information", "max_probability"])
def test_referral_drops_the_images_of_highest_mean_uncertainty(measure):
    prediction, y = predicted()
    scores = SegmentationScores(fractions=(0.0, 4 / 9), uncertainty=measure)
    scores.add(prediction, y)
    uncertainty = prediction.mutual_information
    if measure == "max_probability":
        uncertainty = -prediction.log_mean.max(-1)
    kept = np.argsort(uncertainty.mean((1, 2)))[:5]
    labels, classes = (
        y[kept].ravel(),
        prediction.predicted_classes[kept].ravel(),
    )
    referral = scores.report().referral
    assert referral["uncertainty"] == measure
    assert referral["accuracy"][1] == pytest.approx((labels == classes).mean())
    assert referral["mean_iou"][1] == pytest.approx(
        metrics.jaccard_score(labels, classes, average="macro")
    )


def test_ignored_class_of_one_hot_labels_does_not_count():
    prediction, y = predicted()
    reports = []
    for labels in (y, np.eye(CLASSES)[y]):
        scores = SegmentationScores(ignore_class=2)
        scores.add(prediction, labels)
        reports.append(scores.report())
    assert reports[0].num_pixels == (y != 2).sum()
    assert str(reports[0]) == str(reports[1])


def test_wrong_batches_are_refused():
    prediction, y = predicted()
    scores = SegmentationScores()
    with pytest.raises(ValueError, match="needs pixels that count"):
        scores.report()
    with pytest.raises(ValueError, match="a class at each position"):
        scores.add(ClassificationPrediction(np.log([[0.5, 0.5]])), [0])
    with pytest.raises(ValueError, match="`y` must be given"):
        scores.add(prediction)
    with pytest.raises(ValueError, match="integers from 0 to 2.*label 255"):
        scores.add(prediction, np.full_like(y, VOID))
    scores.add(prediction, y)
    with pytest.raises(ValueError, match="4 classes and 4 samples after 3"):
        scores.add(*predicted(classes=4))
    with pytest.raises(ValueError, match="`ignore_class` must be"):
        SegmentationScores(ignore_class=0.5)


def test_arrays_without_labels_are_told_to_become_a_dataset():
    model = keras.Sequential(
        [keras.Input((2, 2, 1)), keras.layers.Conv2D(3, 1)]
    )
    scores = SegmentationScores()
    with pytest.raises(ValueError, match=r"`tf.data.Dataset` of batches `\(x"):
        bdl.predict(
            model,
            np.ones((4, 2, 2, 1), "float32"),
            on_batch=scores.add,
            options=bdl.prediction.PredictOptions(
                task="classification", from_logits=True
            ),
            verbose=0,
        )
