import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics

from keras_bdl import evaluate
from keras_bdl.evaluation import energy_score
from keras_bdl.evaluation import max_logit_score
from keras_bdl.evaluation import ood_detection
from keras_bdl.evaluation._ood import entropy_divergence
from keras_bdl.prediction import ClassificationPrediction

LOGITS = np.random.default_rng(0).normal(size=(30, 4)) * 300


def make_prediction(alpha, n, num_samples=4, seed=0):
    rng = np.random.default_rng(seed)
    samples = rng.dirichlet(np.full(3, alpha), size=(num_samples, n))
    return ClassificationPrediction.from_probabilities(
        samples.mean(0),
        expected_entropy=scipy.stats.entropy(samples, axis=-1).mean(0),
        num_samples=num_samples,
    )


def test_detection_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=80), rng.normal(1.0, size=50)
    scores = ood_detection(inside, outside)
    known = np.repeat([1, 0], [80, 50])
    uncertainty = np.concatenate([inside, outside])
    fpr, tpr, _ = sklearn.metrics.roc_curve(
        known, -uncertainty, drop_intermediate=False
    )
    expected = {
        "auroc": sklearn.metrics.roc_auc_score(known, -uncertainty),
        "aupr_in": sklearn.metrics.average_precision_score(known, -uncertainty),
        "aupr_out": sklearn.metrics.average_precision_score(
            1 - known, uncertainty
        ),
        "fpr95": fpr[tpr >= 0.95].min(),
    }
    assert scores.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(scores[name], value, err_msg=name)


def test_every_measure_is_scored_by_its_own_values():
    known, unknown = make_prediction(0.3, 60), make_prediction(2.0, 40)
    scores = evaluate(known, np.zeros(60), ood=unknown).ood["ood"]
    for measure, sign in (
        ("confidence", 1),
        ("entropy", -1),
        ("mutual_information", -1),
    ):
        values = [getattr(p, measure) for p in (known, unknown)]
        expected = sklearn.metrics.roc_auc_score(
            np.repeat([1, 0], [60, 40]), sign * np.concatenate(values)
        )
        name = "max_probability" if measure == "confidence" else measure
        np.testing.assert_allclose(scores[name]["auroc"], expected)


def test_single_sample_has_no_mutual_information():
    inside, outside = make_prediction(0.3, 9), make_prediction(2, 9, 1)
    scores = evaluate(inside, np.zeros(9), ood=outside).ood["ood"]
    assert all(np.isnan(v) for v in scores["mutual_information"].values())
    assert not any(np.isnan(v) for v in scores["entropy"].values())


def test_divergence_is_the_sum_of_both_directions():
    rng = np.random.default_rng(0)
    inside = np.log(5) * rng.beta(1, 4, size=400)
    outside = np.log(5) * rng.beta(3, 2, size=300)
    p, q = (
        np.histogram(h, bins=np.linspace(0, np.log(5), 51))[0] / len(h) + 1e-7
        for h in (inside, outside)
    )
    # SciPy normalises the smoothed shares itself.
    expected = scipy.stats.entropy(p, q) + scipy.stats.entropy(q, p)
    actual = entropy_divergence(inside, outside, 5)
    np.testing.assert_allclose(actual, expected)


def test_divergence_keeps_entropies_that_rounding_put_outside():
    highest = np.log(4)
    a = entropy_divergence([-1e-7, 0.5], [highest + 1e-7, 0.5], 4)
    b = entropy_divergence([0.0, 0.5], [highest, 0.5], 4)
    assert a == b > 0
    assert entropy_divergence([0.1, 0.5], [0.5, 0.1], 4) == 0.0


def test_nan_is_refused():
    with pytest.raises(ValueError, match="`outside` must not hold NaN"):
        ood_detection([1.0], [np.nan])
    with pytest.raises(ValueError, match="`inside` must hold at least one"):
        entropy_divergence([], [1.0], 4)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_energy_agrees_with_scipy(temperature):
    expected = -temperature * scipy.special.logsumexp(
        LOGITS / temperature, axis=-1
    )
    actual = energy_score(LOGITS, temperature=temperature)
    np.testing.assert_allclose(actual, expected)
    folded = energy_score(LOGITS.reshape(5, 6, 4), temperature=temperature)
    np.testing.assert_allclose(folded.ravel(), expected)
    np.testing.assert_array_equal(max_logit_score(LOGITS), -LOGITS.max(1))


@pytest.mark.parametrize("score", [energy_score, max_logit_score])
@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (scipy.special.softmax(LOGITS, -1), "before the softmax.*30 rows"),
        (scipy.special.log_softmax(LOGITS, -1), "before the softmax.*30 rows"),
        ([[1.0, np.nan]], "`logits` must not hold NaN"),
        ([1.0, 2.0], r"at least two classes on the last.*\(2,\)"),
    ],
)
def test_what_are_no_logits_is_refused(score, logits, message):
    with pytest.raises(ValueError, match=message):
        score(logits)


def predictions():
    return [
        ClassificationPrediction.from_probabilities(
            scipy.special.softmax(part / 300, -1), y=np.zeros(len(part))
        )
        for part in (LOGITS[:20], LOGITS[20:])
    ]


def test_further_scores_stand_beside_the_entropy():
    inside, outside = predictions()
    energies = energy_score(LOGITS[:20]), energy_score(LOGITS[20:])
    expected = ood_detection(*energies)
    one = evaluate(inside, ood=outside, scores={"energy": energies})
    assert one.ood["ood"]["energy"] == expected
    assert "  energy  " in str(one)
    named = evaluate(
        inside,
        ood={"far": outside},
        scores={"energy": (energies[0], {"far": energies[1]})},
    )
    assert named.ood["far"]["energy"] == expected


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({"energy": np.zeros(20)}, r"`scores\['energy'\]` must be a pair"),
        ({"energy": (np.zeros(20), np.zeros(9))}, "10 inputs outside.*9 sco"),
        ({"entropy": (np.zeros(20), np.zeros(10))}, "names other than"),
    ],
)
def test_wrong_further_scores_are_refused(scores, message):
    inside, outside = predictions()
    with pytest.raises(ValueError, match=message):
        evaluate(inside, ood=outside, scores=scores)
    with pytest.raises(ValueError, match="an entry for each set in `ood`"):
        evaluate(inside, scores={"energy": (np.zeros(20), np.zeros(10))})


def test_infinite_logits_have_the_energy_of_the_limit():
    inf = np.inf
    logits = [[-inf, 2.0, 1.0], [inf, 1.0, -inf], [-inf] * 3, [inf, inf, 0.0]]
    expected = [-np.log(np.exp(2.0) + np.exp(1.0)), -inf, inf, -inf]
    np.testing.assert_allclose(energy_score(logits), expected)
