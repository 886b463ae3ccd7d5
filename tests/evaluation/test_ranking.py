import numpy as np
import pytest
import sklearn.metrics

from keras_bdl.evaluation import auroc
from keras_bdl.evaluation import average_precision
from keras_bdl.evaluation import fpr_at_tpr


def make_scores(seed=0, n=300):
    """Labels and scores on a coarse grid: nearly every score is tied."""
    rng = np.random.default_rng(seed)
    label = rng.integers(2, size=n)
    return label, np.round(rng.normal(label, 1.0), 0 if seed % 2 else 1)


@pytest.mark.parametrize("seed", range(4))
def test_ties_count_as_in_scikit_learn(seed):
    label, score = make_scores(seed)
    positive, negative = score[label == 1], score[label == 0]
    np.testing.assert_allclose(
        auroc(positive, negative), sklearn.metrics.roc_auc_score(label, score)
    )
    np.testing.assert_allclose(
        average_precision(positive, negative),
        sklearn.metrics.average_precision_score(label, score),
    )
    fpr, tpr, _ = sklearn.metrics.roc_curve(
        label, score, drop_intermediate=False
    )
    np.testing.assert_allclose(
        fpr_at_tpr(positive, negative, tpr=0.95), fpr[tpr >= 0.95].min()
    )


def test_weights_count_as_in_scikit_learn():
    label, score = make_scores()
    weight = np.random.default_rng(1).integers(3, size=len(label)) / 2
    one, zero = label == 1, label == 0
    np.testing.assert_allclose(
        auroc(
            score[one],
            score[zero],
            positive_weights=weight[one],
            negative_weights=weight[zero],
        ),
        sklearn.metrics.roc_auc_score(label, score, sample_weight=weight),
    )


def test_fpr_needs_exactly_the_wanted_share():
    # 19 of 20 positives score above every negative.
    positive, negative = [2.0] * 19 + [0.0], [1.0] * 4
    assert fpr_at_tpr(positive, negative, tpr=0.95) == 0.0
    assert fpr_at_tpr(positive, negative, tpr=0.951) == 1.0


@pytest.mark.parametrize("score", [auroc, average_precision, fpr_at_tpr])
def test_score_of_one_class_is_nan(score):
    assert np.isnan(score([1.0, 2.0], []))
    assert np.isnan(score([], [1.0]))
    assert np.isnan(score([], []))


@pytest.mark.parametrize("score", [auroc, average_precision, fpr_at_tpr])
def test_nan_is_refused(score):
    with pytest.raises(ValueError, match="must not hold NaN"):
        score([1.0, np.nan], [0.0])
