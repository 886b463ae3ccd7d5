import json
import sys

import numpy as np
import pytest
import scipy.special
import scipy.stats

from keras_bdl import evaluate
from keras_bdl._reports import MOST_KEPT
from keras_bdl._reports import PerExample
from keras_bdl._reports import flat_numbers
from keras_bdl._reports import format_number
from keras_bdl.conformal import APS
from keras_bdl.conformal import LAC
from keras_bdl.conformal import NormalizedResiduals
from keras_bdl.evaluation import SegmentationScores
from keras_bdl.evaluation import table
from keras_bdl.evaluation._calibration import calibration_errors
from keras_bdl.evaluation._ranking import risk_coverage_areas
from keras_bdl.evaluation._table import _error_of_seeds
from keras_bdl.evaluation._table import bootstrap_means
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction

Y = np.random.default_rng(9).integers(3, size=300)


def make(strength, seed=0, y=Y):
    logits = np.random.default_rng(seed).normal(size=(len(y), 3))
    logits += strength * np.eye(3)[y]
    probs = scipy.special.softmax(logits, -1)
    return evaluate(ClassificationPrediction.from_probabilities(probs), y)


def entry(found, score, first, second):
    return next(
        e
        for e in found.differences[score]
        if (e["first"], e["second"]) == (first, second)
    )


@pytest.mark.parametrize("n", [200, 40_000])
def test_resampled_means_have_the_variance_of_the_mean(n):
    columns = np.random.default_rng(0).gamma(1.0, size=(n, 1))
    repeats = 300
    whole, means = bootstrap_means(
        lambda unit, units: np.bincount(unit, columns[:, 0], units)[:, None],
        n,
        repeats=repeats,
        seed=1,
    )
    np.testing.assert_allclose(whole, columns.mean(0))
    expected = columns.var() / n
    # A variance of `repeats` normal numbers has this relative error.
    relative = np.sqrt(2 / (repeats - 1))
    assert abs(means.var(ddof=1) / expected - 1) < 5 * relative
    assert abs(means.mean() - columns.mean()) < 5 * np.sqrt(expected / repeats)


def test_interval_agrees_with_the_paired_bootstrap_of_scipy():
    a, b = make(1.0), make(1.3, seed=1)
    found = entry(table({"a": a, "b": b}), "nll", "a", "b")
    difference = a.per_example.scores["nll"] - b.per_example.scores["nll"]
    expected = scipy.stats.bootstrap(
        (difference,), np.mean, method="percentile", n_resamples=2000
    ).confidence_interval
    assert found["difference"] == pytest.approx(a.nll - b.nll)
    spread = expected.high - expected.low
    assert abs(found["low"] - expected.low) < 0.12 * spread
    assert abs(found["high"] - expected.high) < 0.12 * spread


def test_only_a_real_difference_means_something():
    found = table({"good": make(3.0), "bad": make(0.5), "also": make(3.0, 1)})
    assert entry(found, "nll", "good", "bad")["means_something"]
    assert entry(found, "accuracy", "good", "bad")["means_something"]
    assert not entry(found, "nll", "good", "also")["means_something"]
    lines = {line.split()[0]: line for line in str(found).splitlines()[3:7]}
    # Calibration errors of 300 examples are hard to tell apart.
    assert lines["bad"].count("*") == 1
    assert not entry(found, "ece", "good", "bad")["means_something"]
    assert lines["good"].count("*") == lines["also"].count("*") == 5


def test_standard_error_is_over_the_seeds_and_widens_the_interval():
    seeds = [make(s) for s in (1.0, 1.2, 1.6)]
    others = [make(s, seed=1) for s in (1.4, 1.5, 1.6)]
    found = table({"a": seeds, "b": others}, scores=["nll", "mce"])
    values = [report.nll for report in seeds]
    assert found.mean["nll"][0] == pytest.approx(np.mean(values))
    assert found.standard_error["nll"][0] == pytest.approx(
        scipy.stats.sem(values)
    )
    of_seeds = entry(found, "nll", "a", "b")
    scale = np.hypot(*found.standard_error["nll"])
    width = of_seeds["high"] - of_seeds["low"]
    assert width > 2 * scipy.stats.t(4).ppf(0.975) * scale * 0.9
    single = entry(table([seeds[0], others[0]]), "nll", "1", "2")
    assert width > single["high"] - single["low"]
    # The largest error of a bin has no numbers of single examples.
    assert "mce" not in found.differences
    assert "±" in str(found)


def test_rmse_is_resampled_as_a_root():
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    a, b = (
        evaluate(
            RegressionPrediction(
                y + s * rng.normal(size=200), variance_within=np.full(200, 1.0)
            ),
            y,
        )
        for s in (1.0, 2.0)
    )
    found = table({"a": a, "b": b})
    assert entry(found, "rmse", "a", "b")["means_something"]
    assert entry(found, "rmse", "a", "b")["difference"] == pytest.approx(
        a.rmse - b.rmse
    )
    np.testing.assert_allclose(
        a.per_example.scores["crps"].mean(), a.crps, rtol=1e-5
    )


def test_infinite_score_has_no_interval():
    wrong = ClassificationPrediction.from_probabilities([[1.0, 0.0]] * 2)
    report = evaluate(wrong, [0, 1])
    found = table([report, report])
    assert found.mean["nll"] == [np.inf, np.inf]
    assert set(found.differences) == {"accuracy", "brier", "ece", "aurc"}


@pytest.mark.parametrize(
    ("reports", "kwargs", "message"),
    [
        ([make(1.0), make(1.0, y=Y[::-1])], {}, r"same test examples.*\['2'\]"),
        ([], {}, "`reports` must be a list of reports"),
        ({"a": []}, {}, "at least one for each name"),
        ([{"nll": 1.0}], {}, "Received: .*dict"),
        ([make(1.0)], {"scores": ["rmse"]}, "`scores` must be names among"),
        ([make(1.0)], {"level": 95}, "`level` must be a number.*95"),
    ],
)
def test_wrong_tables_are_refused(reports, kwargs, message):
    with pytest.raises(ValueError, match=message):
        table(reports, **kwargs)
    if "same test" in message:
        assert not table(reports, repeats=0).differences


@pytest.mark.parametrize(("first", "second"), [(1, 4), (5, 1), (3, 3)])
def test_error_over_seeds_covers_a_difference_of_zero(first, second):
    rng = np.random.default_rng(0)
    repeats, inside = 4000, 0
    for _ in range(repeats):
        a, b = rng.normal(size=first), rng.normal(size=second)
        scale, freedom = _error_of_seeds(a, b)
        reach = scale * scipy.stats.t.ppf(0.975, freedom)
        inside += abs(a.mean() - b.mean()) < reach
    error = np.sqrt(0.95 * 0.05 / repeats)
    # Two methods of several seeds may have other variances: no exact law.
    assert inside / repeats > 0.95 - 5 * error
    if 1 in (first, second):
        assert inside / repeats < 0.95 + 5 * error


def test_few_examples_prove_nothing():
    for n, something in ((19, False), (20, True)):
        y = np.arange(n) % 3
        sure, unsure = (
            evaluate(
                ClassificationPrediction.from_probabilities(
                    np.where(np.eye(3)[y] > 0, p, (1 - p) / 2)
                ),
                y,
            )
            for p in (0.9, 0.8)
        )
        (found,) = table([sure, unsure]).differences["nll"]
        assert found["means_something"] is something


def test_kept_scores_are_float32_and_bounded():
    y = np.zeros(2 * MOST_KEPT + 1, "int8")
    kept = PerExample.of(y, nll=np.arange(len(y))).scores["nll"]
    assert kept.dtype == "float32" and len(kept) <= MOST_KEPT
    assert "per_example" not in make(1.0).to_dict()


def test_frame_needs_pandas_and_has_one_column_for_each_number(monkeypatch):
    report = make(1.0)
    flat = flat_numbers(report.to_dict())
    assert flat["referral.accuracy.1"] == report.referral["accuracy"][1]
    assert flat["per_class.f1.2"] == report.per_class["f1"][2]
    monkeypatch.setitem(sys.modules, "pandas", None)
    for needs_pandas in (report, table([report])):
        with pytest.raises(ImportError, match="`pip install pandas`"):
            needs_pandas.to_frame()


def test_frame_has_one_row_for_each_method():
    pytest.importorskip("pandas")
    report = make(1.0)
    assert report.to_frame().loc[0, "nll"] == report.nll
    frame = table({"a": report, "b": [report, report]}).to_frame()
    assert list(frame.index) == ["a", "b"]
    assert frame.loc["b", "nll_error"] == 0.0
    assert np.isnan(frame.loc["a", "nll_low"])
    found = table({"good": make(3.0), "bad": make(0.5)})
    entries = entry(found, "nll", "good", "bad")
    row = found.to_frame().loc["bad"]
    assert row["nll_difference"] == -entries["difference"] > 0
    assert row["nll_low"] == -entries["high"] > 0
    assert row["nll_high"] == -entries["low"]
    assert row["nll_means_something"] is True


def test_zero_has_no_sign():
    assert "-0.0000" not in str(table([make(1.0), make(1.0)]))
    assert format_number(-0.0) == "0.0000"


def resampled_report(report_of, n, repeats=200, seed=5):
    """Returns scores of reports on resampled examples."""
    rng = np.random.default_rng(seed)
    return np.array(
        [report_of(rng.integers(n, size=n)) for _ in range(repeats)]
    )


@pytest.mark.parametrize("score", ["ece", "aurc", "rmse"])
def test_resampled_scores_are_those_of_resampled_examples(score):
    n = 400
    rng = np.random.default_rng(3)
    if score == "rmse":
        y = rng.normal(size=n)
        mean = y + rng.gamma(1.0, size=n)
        report = evaluate(RegressionPrediction(mean), y)

        def resampled(i):
            return np.sqrt(np.mean((mean - y)[i] ** 2))

    else:
        y = rng.integers(3, size=n)
        probs = scipy.special.softmax(
            rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y], -1
        )
        probs = np.round(probs, 2)  # some confidences are equal
        p = ClassificationPrediction.from_probabilities(
            probs / probs.sum(-1, keepdims=True)
        )
        report = evaluate(p, y)
        correct, confidence = p.predicted_classes == y, p.confidence

        def resampled(i):
            if score == "ece":
                return calibration_errors(confidence[i], correct[i])[0]
            return risk_coverage_areas(p.entropy[i], correct[i])[0]

    whole, means = bootstrap_means(
        lambda *group: report.per_example.sums(score, *group),
        n,
        repeats=2000,
        seed=0,
    )
    of = report.per_example.score
    np.testing.assert_allclose(of(score, whole), report[score], rtol=1e-5)
    found, expected = of(score, means), resampled_report(resampled, n)
    # A standard deviation of 200 numbers has a relative error of 5 %.
    np.testing.assert_allclose(found.std(), expected.std(), rtol=0.25)
    error = expected.std() / np.sqrt(200)
    bias = expected.mean() - report[score]
    if score == "aurc":  # of first order, without the small bias
        assert abs(bias) < 0.2 * expected.std()
        bias = 0.0
    assert abs(found.mean() - report[score] - bias) < 5 * error


def test_calibration_errors_of_two_calibrated_models_are_not_told_apart():
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(40):
        # The second model sees the sign of the logit alone.
        z = 2 * rng.normal(size=300)
        p, y = scipy.special.expit(z), rng.uniform(size=300)
        y = (y < p).astype(int)
        coarse = np.where(z > 0, 0.7735, 0.2265)  # E[p | z > 0], and less
        reports = [
            evaluate(
                ClassificationPrediction.from_probabilities(
                    np.stack([1 - q, q], 1)
                ),
                y,
            )
            for q in (p, coarse)
        ]
        found = table(reports, scores="ece", repeats=200)
        alarms += found.differences["ece"][0]["means_something"]
    assert alarms <= 2
    worse = table({"a": make(3.0), "b": make(0.1)}, scores=["ece"])
    assert entry(worse, "ece", "a", "b")["means_something"]


def test_segmentations_are_resampled_by_image():
    rng = np.random.default_rng(0)
    reports, logits = [], []
    y = rng.integers(3, size=(30, 4, 5))
    for strength in (1.0, 2.0):
        logits.append(rng.normal(size=(*y.shape, 3)) + strength * np.eye(3)[y])
        scores = SegmentationScores(num_bins=5)
        for rows in (slice(0, 11), slice(11, 30)):
            p = ClassificationPrediction(
                scipy.special.log_softmax(logits[-1][rows], -1)
            )
            scores.add(p, y[rows])
        reports.append(scores.report())
    for name in ("accuracy", "mean_iou", "nll", "brier", "ece"):
        per_image = reports[0].per_example
        columns = per_image.sums(name, np.arange(30), 30)
        chosen = [3, 3, 7, 20]
        alone = SegmentationScores(num_bins=5)
        alone.add(
            ClassificationPrediction(
                scipy.special.log_softmax(logits[0][chosen], -1)
            ),
            y[chosen],
        )
        np.testing.assert_allclose(
            per_image.score(name, columns[chosen].mean(0)),
            alone.report()[name],
            rtol=1e-5,
        )
    found = table({"weak": reports[0], "strong": reports[1]})
    assert list(found.mean) == ["accuracy", "mean_iou", "nll", "brier", "ece"]
    assert entry(found, "mean_iou", "weak", "strong")["means_something"]
    assert "mean_iou: weak - strong" in str(found)


def test_sets_have_the_best_coverage_nearest_to_what_they_were_asked_for():
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=600)
    p = ClassificationPrediction(
        scipy.special.log_softmax(
            rng.normal(size=(600, 5)) + 1.5 * np.eye(5)[y], -1
        ),
        y=y,
    )
    halves = [
        ClassificationPrediction(p.log_mean[rows], y=y[rows])
        for rows in (slice(0, 300), slice(300, 600))
    ]
    reports = {
        name: method.fit(halves[0], coverage=0.8)(halves[1]).evaluate()
        for name, method in {
            "LAC": LAC(),
            "whole": APS(randomized=False),
        }.items()
    }
    found = table(reports)
    difference = entry(found, "mean_size", "LAC", "whole")
    assert difference["means_something"] and difference["high"] < 0
    assert difference["difference"] == pytest.approx(
        reports["LAC"].mean_size - reports["whole"].mean_size
    )
    nearest = min(reports, key=lambda name: abs(reports[name].coverage - 0.8))
    assert found._best("coverage") == list(reports).index(nearest)
    reports["other"] = LAC().fit(halves[0], coverage=0.9)(halves[1]).evaluate()
    with pytest.raises(ValueError, match="sets of one coverage.*0.8, 0.9"):
        table(reports)


def test_notebook_shows_the_tables_with_escaped_names():
    report = make(1.0)
    text = table({"a<b": report})._repr_html_()
    assert "a&lt;b" in text and "a<b" not in text
    assert text.count("<table>") == text.count("</table>") == 1
    page = report._repr_html_()
    assert f"{report.nll:.4f}</td>" in page
    assert page.count("<tr>") == sum(len(r) for _, r in report.sections())
    json.dumps(report.to_dict())


def several_labels(copies, n=300, tokens=1, strength=1.0, seed=0, mask=None):
    """Returns probabilities and labels, copied inside each example."""
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=(n, tokens))
    logits = np.random.default_rng(seed).normal(size=(n, tokens, 3))
    probs = scipy.special.softmax(logits + strength * np.eye(3)[y], -1)
    p = ClassificationPrediction.from_probabilities(
        np.repeat(probs, copies, axis=1),
        mask=None if mask is None else np.repeat(mask, copies, axis=1),
    )
    return p, np.repeat(y, copies, axis=1)


def test_copies_of_labels_inside_an_example_prove_nothing_more():
    def compared(copies, flat=False):
        reports = []
        for seed, strength in enumerate((1.0, 1.05)):
            p, y = several_labels(copies, strength=strength, seed=seed)
            if flat:
                p = ClassificationPrediction(p.log_mean.reshape(-1, 3))
            reports.append(evaluate(p, y.ravel() if flat else y))
        found = table(reports).differences
        return {score: entries[0] for score, entries in found.items()}

    once, copied, independent = compared(1), compared(16), compared(16, True)
    for score, expected in once.items():
        for key in ("difference", "low", "high"):
            np.testing.assert_allclose(
                copied[score][key],
                expected[key],
                # The places of a rank depend a little on their number.
                **{"atol": 1e-3 if score == "aurc" else 0, "rtol": 1e-5},
            )
    # As many independent labels would turn this chance into significance.
    assert independent["nll"]["means_something"]
    assert not copied["nll"]["means_something"]


def test_interval_of_tokens_is_that_of_a_bootstrap_of_sentences():
    n, tokens = 120, 8
    rng = np.random.default_rng(0)
    mask = np.arange(tokens) < rng.integers(1, tokens + 1, n)[:, None]
    pairs = [
        several_labels(3, n, tokens, s, i, mask)
        for i, s in enumerate((1.0, 1.2))
    ]
    reports = [evaluate(*pair) for pair in pairs]
    loss = [
        np.where(
            p.mask,
            -np.take_along_axis(p.log_mean, y[..., None], -1)[..., 0],
            0.0,
        )
        for p, y in pairs
    ]
    kept = pairs[0][0].mask.sum(1)
    difference = (loss[0] - loss[1]).sum(1)
    drawn = rng.integers(n, size=(4000, n))
    expected = difference[drawn].sum(1) / kept[drawn].sum(1)
    low, high = np.quantile(expected, [0.025, 0.975])
    found = entry(table(reports), "nll", "1", "2")
    np.testing.assert_allclose(
        found["difference"], difference.sum() / kept.sum(), rtol=1e-6
    )
    assert abs(found["low"] - low) < 0.12 * (high - low)
    assert abs(found["high"] - high) < 0.12 * (high - low)
    # A bootstrap of the tokens has half of this width at most.
    each = (loss[0] - loss[1])[pairs[0][0].mask]
    assert 2 * 1.96 * each.std() / np.sqrt(each.size) < 0.65 * (high - low)


@pytest.mark.parametrize("score", ["accuracy", "nll", "brier", "ece", "aurc"])
def test_resampled_scores_of_sentences_are_those_of_their_tokens(score):
    n, tokens = 40, 6
    rng = np.random.default_rng(1)
    mask = np.arange(tokens) < rng.integers(1, tokens + 1, n)[:, None]
    mask[7] = False  # a sentence of padding alone
    p, y = several_labels(1, n, tokens, mask=mask)
    per_example = evaluate(p, y, uncertainty="max_probability").per_example
    chosen = np.array([3, 3, 9, 20, 31])
    again = evaluate(
        ClassificationPrediction(p.log_mean[chosen], mask=mask[chosen]),
        y[chosen],
    )
    columns = per_example.sums(score, np.arange(n - 1), n - 1)
    found = per_example.score(score, columns[chosen - (chosen > 7)].mean(0))
    if score == "aurc":  # of first order: exact for all sentences alone
        found = per_example.score(score, columns.mean(0))
        again = evaluate(p, y, uncertainty="max_probability")
    np.testing.assert_allclose(found, again[score], rtol=1e-5)


def test_copies_of_targets_change_no_interval():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(60, 1))
    means = [y + s * rng.normal(size=y.shape) for s in (1.0, 1.1)]
    once, copied = (
        table(
            [
                evaluate(
                    RegressionPrediction(
                        np.repeat(mean, c, 1), variance_within=np.ones((60, c))
                    ),
                    np.repeat(y, c, 1),
                )
                for mean in means
            ]
        )
        for c in (1, 16)
    )
    sets = [
        table(
            [
                NormalizedResiduals()
                .fit(
                    RegressionPrediction(
                        np.repeat(mean, c, 1), variance_within=np.ones((60, c))
                    ),
                    np.repeat(y, c, 1),
                )(
                    RegressionPrediction(
                        np.repeat(m, c, 1), variance_within=np.ones((60, c))
                    )
                )
                .evaluate(np.repeat(y, c, 1))
                for mean, m in (means, means[::-1])
            ]
        )
        for c in (1, 16)
    ]
    for one, several in ((once, copied), sets):
        for score, entries in one.differences.items():
            for key in ("difference", "low", "high"):
                np.testing.assert_allclose(
                    several.differences[score][0][key],
                    entries[0][key],
                    rtol=1e-5,
                    atol=1e-7,
                )
