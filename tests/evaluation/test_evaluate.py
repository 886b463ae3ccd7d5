import json

import keras
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from keras_bdl import evaluate
from keras_bdl import metrics
from keras_bdl._reports import flat_numbers
from keras_bdl.conformal import LAC
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction


def make_prediction(n=200, classes=4, num_samples=5, seed=0, **kwargs):
    rng = np.random.default_rng(seed)
    alpha = np.full(classes, 0.5)
    samples = rng.dirichlet(alpha, size=(num_samples, n))
    mean = samples.mean(0)
    return ClassificationPrediction.from_probabilities(
        mean,
        expected_entropy=scipy.stats.entropy(samples, axis=-1).mean(0),
        num_samples=num_samples,
        **kwargs,
    )


def make_labels(n=200, classes=4, seed=9):
    return np.random.default_rng(seed).integers(classes, size=n)


def make_regression(n=40, draws=6, seed=0):
    rng = np.random.default_rng(seed)
    samples = rng.normal(size=(draws, n, 1))
    variances = rng.uniform(0.5, 1.0, size=(draws, n, 1))
    moments = (samples.mean(0), samples.var(0), variances.mean(0), draws)
    return rng.normal(size=n), samples, variances, moments


def test_classification_agrees_with_scikit_learn_and_the_metrics():
    p, y = make_prediction(), make_labels()
    report = evaluate(p, y)
    correct = p.predicted_classes == y
    assert report.accuracy == sklearn.metrics.accuracy_score(
        y, p.predicted_classes
    )
    np.testing.assert_allclose(report.nll, sklearn.metrics.log_loss(y, p.mean))
    np.testing.assert_allclose(
        report.auroc_correctness,
        sklearn.metrics.roc_auc_score(correct, p.confidence),
    )
    for name, metric in (
        ("nll", metrics.NegativeLogLikelihood(from_logits=False)),
        ("brier", metrics.BrierScore(from_logits=False)),
        ("ece", metrics.ExpectedCalibrationError(from_logits=False)),
        ("mce", metrics.MaximumCalibrationError(from_logits=False)),
        ("entropy", metrics.PredictiveEntropy(from_logits=False)),
    ):
        metric.update_state(y, p.mean)
        np.testing.assert_allclose(report[name], metric.result(), rtol=1e-5)
    np.testing.assert_allclose(
        report.entropy, report.expected_entropy + report.mutual_information
    )


def test_report_is_a_dict_of_plain_numbers():
    p, far = make_prediction(classes=2), make_prediction(classes=2, seed=1)
    report = evaluate(p, make_labels(classes=2), ood={"far": far})
    assert dict(report) == json.loads(json.dumps(report.to_dict()))
    assert (
        report["ood"]["far"]["entropy"]["auroc"]
        == (report.ood["far"]["entropy"]["auroc"])
    )


def test_single_ood_prediction_is_named_ood():
    other = make_prediction(30, seed=1)
    report = evaluate(make_prediction(), make_labels(), ood=other)
    assert report.ood["ood"]["num_inputs"] == 30


def test_labels_may_come_in_every_usual_form():
    y = make_labels()
    expected = evaluate(make_prediction(), y).to_dict()
    for labels in (y[:, None], y.astype("float32"), np.eye(4)[y], list(y)):
        assert evaluate(make_prediction(), labels).to_dict() == expected
    assert evaluate(make_prediction(y=y)).to_dict() == expected


def test_axes_after_the_first_are_inputs_too():
    p, y = make_prediction(), make_labels()
    folded = ClassificationPrediction(
        p.log_mean.reshape(50, 4, 4),
        expected_entropy=p.expected_entropy.reshape(50, 4),
        num_samples=5,
    )
    actual = evaluate(folded, y.reshape(50, 4), ood=folded).to_dict()
    expected = evaluate(p, y, ood=p).to_dict()
    assert str(actual) == str(expected)


def test_table_shows_every_number_in_line():
    y = np.array([0, 0, 1, 1])
    p = ClassificationPrediction.from_probabilities(
        [[1.0, 0.0], [0.8, 0.2], [0.2, 0.8], [0.8, 0.2]]
    )
    title, *sections = str(evaluate(p, y, ood={"noise": p})).split("\n\n")
    assert title == (
        "Classification of 4 inputs into 2 classes, 1 posterior sample"
    )
    tables = {}
    for head, *lines in map(str.splitlines, sections):
        rows = {line[:32].strip(): line[32:].split() for line in lines}
        tables[head] = rows
        # The first number of every row ends in the same column.
        assert {line[43:44] for line in lines} <= {"", " "}

    quality = tables["Quality"]
    assert quality["accuracy"] == ["0.7500"]
    # (0 + .08 + .08 + 1.28) / 4, of which half is the uncertainty.
    assert quality["Brier score"] == ["0.3600"]
    assert quality["+ uncertainty of labels"] == ["0.5000"]
    # The wrong one ties with two right ones and loses to one: (1 + 2/2) / 3.
    calibration = tables["Calibration, 20 bins"]
    assert calibration["AUROC of correctness"] == ["0.6667"]
    uncertainty = tables["Uncertainty in nats, mean"]
    assert uncertainty["mutual information (epistemic)"] == ["n/a"]
    # Entropy, because a single draw has no mutual information. What stays of
    # the three tied inputs is 2.6, 2.2 and 1.8 of them, two thirds right.
    referral = tables["Referral of the most uncertain, by entropy"]
    expected = [(1 + 2 / 3 * n) / (1 + n) for n in (3, 2.6, 2.2, 1.8)]
    assert referral["accuracy"] == [f"{a:.4f}" for a in expected]
    noise = tables["Out of distribution: noise, 4 inputs"]
    assert noise["max probability"] == ["0.5000", "0.5000", "0.5000", "1.0000"]
    assert noise["mutual information"] == ["n/a"] * 4


@pytest.mark.parametrize("wrong", [False, True])
def test_all_right_or_all_wrong_prints(wrong):
    p = make_prediction()
    y = (p.predicted_classes + wrong) % 4
    report = evaluate(p, y)
    assert np.isnan(report.auroc_correctness)
    assert report.accuracy == 1 - wrong
    line = next(s for s in str(report).splitlines() if "AUROC of" in s)
    assert line.endswith("n/a")


def test_one_class_in_the_data_prints():
    report = evaluate(make_prediction(classes=2), np.ones(200, int))
    assert all(np.isnan(report.referral["auroc"]))
    assert report.brier_uncertainty == 0.0
    assert "n/a" in str(report)


def test_label_of_probability_zero_is_infinitely_unlikely():
    p = ClassificationPrediction.from_probabilities([[1.0, 0.0], [0.5, 0.5]])
    report = evaluate(p, [1, 0])
    assert report.nll == np.inf
    assert report.mce == 1.0
    assert report.entropy == pytest.approx(np.log(2) / 2)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "`y` must be given"),
        (np.zeros(199), r"in shape \(200,\) or \(200, 4\).*\(199,\)"),
        (np.zeros((200, 3)), r"in shape \(200,\).*\(200, 3\)"),
        (np.full(200, 4), "integers from 0 to 3.*label 4"),
        (np.full(200, -1), "integers from 0 to 3.*label -1"),
        (np.full(200, 0.5), "integers from 0 to 3.*label 0.5"),
        (np.full(200, np.nan), "`y` must not hold NaN"),
        (np.full((200, 4), 0.25), "must be one-hot"),
        ([], "`y` must hold at least one value"),
        (["a"] * 200, "`y` must hold numbers"),
    ],
)
def test_wrong_labels_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        evaluate(make_prediction(), y)


def test_rows_that_are_no_distribution_are_refused():
    y = [0, 1]
    with pytest.raises(
        ValueError, match=r"sum to 1 .* softmax .* sum of 21.09"
    ):
        evaluate(ClassificationPrediction([[0.0, 3.0], [2.0, 0.0]]), y)
    with pytest.raises(ValueError, match="prediction.log_mean.* NaN"):
        evaluate(ClassificationPrediction([[np.nan, 0.0], [0.0, -9.0]]), y)
    with pytest.raises(ValueError, match="must hold at least one"):
        evaluate(ClassificationPrediction(np.zeros((0, 2))), [])
    with pytest.raises(ValueError, match="`y` must be .* for each output"):
        evaluate({"a": make_prediction()}, y)


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([[0.5, np.nan]], "not hold NaN"),
        ([[1.5, -0.5]], "not be negative.*-0.5"),
        ([[0.5, 0.4]], "sum to 1 .* sum of 0.9"),
        (0.5, "classes on the last axis"),
        (np.zeros((0, 3)), "at least one value"),
    ],
)
def test_wrapped_probabilities_are_checked(probabilities, message):
    with pytest.raises(ValueError, match=f"`probabilities` must.*{message}"):
        ClassificationPrediction.from_probabilities(probabilities)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_bins": 2.5}, "`num_bins` must be a positive integer.*2.5"),
        ({"fractions": (0.0, 1.0)}, "`fractions\[1\]` must be a number.*=1.0"),
        ({"fractions": 1.0}, r"`fractions\[0\]` must be a number"),
        ({"fractions": "a"}, r"`fractions\[0\]` must be a number"),
    ],
)
def test_wrong_options_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        evaluate(make_prediction(), make_labels(), **kwargs)


def test_referral_of_several_classes_has_no_area():
    report = evaluate(make_prediction(), make_labels())
    assert np.isnan(report.referral["auroc"]).all()
    referral = str(report).partition("Referral")[2]
    assert "accuracy" in referral
    assert "AUROC" not in referral


def test_ood_of_another_problem_is_refused():
    p, y = make_prediction(), make_labels()
    with pytest.raises(ValueError, match=r"`ood\['far'\]`.* 4 classes.* 3"):
        evaluate(p, y, ood={"far": make_prediction(classes=3)})
    with pytest.raises(ValueError, match=r"`ood\['ood'\]` must be .* ndarray"):
        evaluate(p, y, ood=p.mean)
    with pytest.raises(ValueError, match="`ood` must be `None` for a regress"):
        evaluate(RegressionPrediction([1.0]), [1.0], ood=p)


def prediction(moments, **kwargs):
    mean, between, within, num_samples = moments
    return RegressionPrediction(
        mean,
        variance_between=between,
        variance_within=within,
        num_samples=num_samples,
        **kwargs,
    )


def test_regression_uses_the_exact_mixture_where_it_can():
    y, samples, variances, moments = make_regression()
    exact = evaluate(
        prediction(moments, samples=samples, sample_variances=variances),
        y,
    )
    density = scipy.stats.norm(samples, np.sqrt(variances)).pdf(y[:, None])
    assert exact.density == "mixture"
    np.testing.assert_allclose(
        exact.log_likelihood, np.log(density.mean(0)).mean()
    )
    np.testing.assert_allclose(
        exact.rmse,
        sklearn.metrics.root_mean_squared_error(y, moments[0][:, 0]),
    )
    assert "Density: mixture of 6 Gaussians" in str(exact)


def test_regression_without_draws_uses_the_total_variance():
    y, _, _, moments = make_regression()
    report = evaluate(prediction(moments), y[:, None], levels=[0.8])
    density = scipy.stats.norm(moments[0], np.sqrt(moments[1] + moments[2]))
    assert report.density == "gaussian"
    np.testing.assert_allclose(
        report.log_likelihood, density.logpdf(y[:, None]).mean()
    )
    low, high = density.interval(0.8)
    inside = (low <= y[:, None]) & (y[:, None] <= high)
    assert report.coverage == {0.8: inside.mean()}
    assert "Density: Gaussian of the total variance\n" in str(report)


@pytest.mark.parametrize("keep", [True, False])
def test_rescaled_regression_has_the_density_of_the_units_of_the_data(keep):
    y, samples, variances, moments = make_regression()
    draws = {"samples": samples, "sample_variances": variances}
    p = prediction(moments, y=y, **(draws if keep else {}))
    standard, report = evaluate(p), evaluate(p.rescaled(8.0, -3.0))
    change = {
        "rmse": 8.0 * standard.rmse,
        "crps": 8.0 * standard.crps,
        "log_likelihood": standard.log_likelihood - np.log(8.0),
        "variance_within": 64.0 * standard.variance_within,
        "variance_between": 64.0 * standard.variance_between,
        "density": standard.density,
    }
    assert {n: report[n] for n in change} == pytest.approx(change)
    assert report.coverage == standard.coverage
    in_units = evaluate(p.rescaled(8.0, -3.0), 8.0 * y - 3.0)
    assert in_units.rmse == pytest.approx(report.rmse)
    with pytest.raises(ValueError, match="`scale` must be positive"):
        p.rescaled(0.0)


def test_regression_without_variance_has_no_density():
    report = evaluate(RegressionPrediction([1.0, 2.0]), [1.5, 4.0])
    assert np.isnan([report.log_likelihood, *report.coverage.values()]).all()
    assert report.crps == 1.25  # the mean absolute error
    assert ", without noise" in str(report)


@pytest.mark.parametrize(
    ("prediction", "y", "message"),
    [
        (RegressionPrediction([1.0, 2.0]), [1.0], r"\(2,\).*\(1,\)"),
        (RegressionPrediction([1.0]), [np.nan], "`y` must not hold NaN"),
        (RegressionPrediction([np.nan]), [1.0], "prediction.mean.*NaN"),
        (RegressionPrediction([1.0]), None, "`y` must be given"),
        (
            RegressionPrediction([1.0], variance_between=[-1.0]),
            [0.0],
            "must not be negative",
        ),
    ],
)
def test_wrong_regression_input_is_refused(prediction, y, message):
    with pytest.raises(ValueError, match=message):
        evaluate(prediction, y)


def test_number_of_predictions_is_known_without_their_probabilities():
    # The probabilities would take eight terabytes.
    log_mean = np.broadcast_to(np.log(0.5), (10**12, 1, 2))
    p = ClassificationPrediction(log_mean, expected_entropy=0.0)
    assert len(p) == 10**12
    assert repr(p) == (
        "ClassificationPrediction(shape=(1000000000000, 1, 2), num_samples=1)"
    )


def padded_classes(seed, n=30, steps=5, samples=4, **kwargs):
    """Returns a prediction with padding, the same without, and its mask."""
    rng = np.random.default_rng(seed)
    kept = np.arange(steps) < rng.integers(1, steps + 1, n)[:, None]
    probs = rng.dirichlet(np.ones(3), size=(samples, n, steps))
    expected = scipy.stats.entropy(probs, axis=-1).mean(0)
    mean = probs.mean(0)
    # Padding may hold anything.
    mean[~kept], expected[~kept] = 7.0, np.nan
    mean[0, 0], expected[0, 0] = [1.0, 0.0, 0.0], 0.0
    padded = ClassificationPrediction.from_probabilities(
        mean,
        mask=kept,
        expected_entropy=expected,
        num_samples=samples,
        **kwargs,
    )
    without = ClassificationPrediction.from_probabilities(
        mean[kept], expected_entropy=expected[kept], num_samples=samples
    )
    return padded, without, kept


def assert_same_numbers(report, expected):
    found, expected = flat_numbers(report), flat_numbers(expected)
    assert set(found) == set(expected)
    for key, value in expected.items():
        if isinstance(value, str):
            assert found[key] == value
        else:
            np.testing.assert_allclose(found[key], value, 1e-6, err_msg=key)


@pytest.mark.parametrize("one_hot", [False, True])
def test_report_on_padded_tokens_is_that_without_padding(one_hot):
    rng = np.random.default_rng(0)
    (p, q, kept), ood, shifted = (padded_classes(s) for s in range(3))
    scores = [rng.normal(size=k.shape) for k in (kept, ood[2])]
    for score, k in zip(scores, (kept, ood[2]), strict=True):
        score[~k] = np.nan
    y = rng.integers(3, size=kept.shape)
    y[~kept] = -100
    given = y
    if one_hot:
        given = np.where(kept[..., None], np.eye(3)[y.clip(0)], 0.0)
    also = kept & shifted[2]
    report = evaluate(
        p,
        given,
        ood={"far": ood[0]},
        scores={"own": (scores[0], {"far": scores[1]})},
        shift={"turned": [shifted[0]]},
    ).to_dict()
    expected = evaluate(
        q,
        y[kept],
        ood={"far": ood[1]},
        scores={"own": (scores[0][kept], {"far": scores[1][ood[2]]})},
    ).to_dict()
    moved = evaluate(
        ClassificationPrediction(shifted[0].log_mean[also]), y[also]
    )
    assert report["shift"]["turned"]["nll"] == [pytest.approx(moved.nll)]
    assert report["shift"]["turned"]["num_inputs"] == [also.sum()]
    del report["shift"], expected["shift"]
    assert_same_numbers(report, expected)


def test_ignored_class_counts_in_no_score():
    p, _, kept = padded_classes(0, ignore_class=2)
    y = np.random.default_rng(0).integers(3, size=kept.shape)
    counted = kept & (y != 2)
    expected = evaluate(
        ClassificationPrediction(p.log_mean[counted]), y[counted]
    )
    report = evaluate(p, y)
    assert report.num_inputs == counted.sum()
    assert report.nll == pytest.approx(expected.nll)
    assert report.ece_classwise == pytest.approx(expected.ece_classwise)
    with pytest.raises(ValueError, match="must have an entry that counts"):
        evaluate(p, np.full_like(y, 2))


@pytest.mark.parametrize("samples", [0, 4])
def test_regression_report_on_padded_targets_is_that_without(samples):
    rng = np.random.default_rng(0)
    kept = np.arange(5) < rng.integers(1, 6, 30)[:, None]
    means = rng.normal(size=(max(samples, 1), *kept.shape, 2))
    within = rng.uniform(0.5, 1.0, size=means.shape)
    y = rng.normal(size=(*kept.shape, 2))
    within[:, ~kept], y[~kept] = 0.0, np.nan

    def made(chosen, **kwargs):
        if samples:
            kwargs |= {
                "samples": means[:, chosen],
                "sample_variances": within[:, chosen],
            }
        return RegressionPrediction(
            means.mean(0)[chosen],
            variance_between=means.var(0)[chosen],
            variance_within=within.mean(0)[chosen],
            **kwargs,
        )

    padded = made(..., mask=kept)
    report = evaluate(padded, y, shift={"same": [padded]})
    expected = evaluate(made(kept), y[kept], shift={"same": [made(kept)]})
    assert report.num_values == 2 * kept.sum()
    assert_same_numbers(report.to_dict(), expected.to_dict())


def test_mask_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="first axes.*mask of shape"):
        make_prediction(mask=np.ones(3, bool))


@pytest.mark.parametrize(
    ("received", "message"),
    [
        (keras.Sequential(), r"`keras_bdl.predict\(model, x\)` in place.*Seq"),
        (np.ones((3, 2)) / 2, "`ClassificationPrediction.from_prob.*ndarray"),
    ],
)
def test_what_is_no_prediction_is_told_how_to_become_one(received, message):
    with pytest.raises(ValueError, match=message):
        evaluate(received, make_labels(classes=2))
    if isinstance(received, keras.Model):
        with pytest.raises(ValueError, match="outputs one by one. Received: l"):
            LAC().fit([make_prediction()], make_labels())
        with pytest.raises(ValueError, match=message):
            LAC().fit(received, make_labels())
