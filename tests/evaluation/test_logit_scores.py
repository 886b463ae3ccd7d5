import numpy as np
import pytest
import scipy.special

from keras_bdl.evaluation import energy_score
from keras_bdl.evaluation import evaluate
from keras_bdl.evaluation import max_logit_score
from keras_bdl.evaluation import ood_detection
from keras_bdl.prediction import ClassificationPrediction

LOGITS = np.random.default_rng(0).normal(size=(30, 4)) * 300


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
