"""How well uncertainty tells known inputs from out-of-distribution ones."""

import numpy as np

from keras_bdl.data.checked_inputs import check_count
from keras_bdl.data.checked_inputs import numbers
from keras_bdl.evaluation.ranking import auroc
from keras_bdl.evaluation.ranking import average_precision
from keras_bdl.evaluation.ranking import fpr_at_tpr
from keras_bdl.evaluation.referral import MEASURES
from keras_bdl.evaluation.referral import uncertainty_of


def ood_detection(inside, outside) -> dict:
    """Scores an uncertainty as a detector, with inside the positive class.

    Args:
        inside: Uncertainty of each in-distribution input.
        outside: Uncertainty of each out-of-distribution input.

    Returns:
        A dict: `auroc`; `aupr_in` and `aupr_out`, average precision with
        inside and with outside as the positive class; `fpr95`, the share of
        outside inputs that pass a threshold which 95 % of the inside inputs
        pass.
    """
    inside = numbers("inside", inside).ravel()
    outside = numbers("outside", outside).ravel()
    return {
        "auroc": auroc(-inside, -outside),
        "aupr_in": average_precision(-inside, -outside),
        "aupr_out": average_precision(outside, inside),
        "fpr95": fpr_at_tpr(-inside, -outside, tpr=0.95),
    }


def ood_scores(inside, outside) -> dict:
    """Scores every measure of uncertainty of two predictions as a detector.

    Args:
        inside: `ClassificationPrediction` for in-distribution inputs.
        outside: `ClassificationPrediction` for out-of-distribution inputs.

    Returns:
        A dict of the results of `ood_detection` for `mutual_information`
        (NaN if either prediction is a single draw), `entropy` and
        `max_probability`.
    """
    scores = {}
    for measure in MEASURES:
        used, known = uncertainty_of(inside, measure)
        used_outside, unknown = uncertainty_of(outside, measure)
        scores[measure] = ood_detection(known, unknown)
        if not used == used_outside == measure:
            scores[measure] = dict.fromkeys(scores[measure], np.nan)
    return scores


def entropy_divergence(
    inside,
    outside,
    num_classes: int,
    num_bins: int = 50,
    smoothing: float = 1e-7,
) -> float:
    """Returns the symmetrised KL divergence between two sets of entropies.

    Both sets are counted in the same bins of equal width on
    `[0, log(num_classes)]`. With `p` and `q` the shares of the two sets in
    the bins, `smoothing` added to each and normalised again,

        KL(p || q) + KL(q || p) = sum_k (p_k - q_k) log(p_k / q_k)        (1)

    in nats. Its size depends on `num_bins` and `smoothing`: two sets that do
    not overlap give about `2 log(1 / smoothing)`.

    Args:
        inside: Predictive entropies of in-distribution inputs, in nats.
        outside: Predictive entropies of out-of-distribution inputs.
        num_classes: Number of classes.
        num_bins: Number of bins. Defaults to `50`.
        smoothing: Added to the share of every bin. Defaults to `1e-7`.

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), table 1,
          which does not say its bins
    """
    check_count("num_bins", num_bins)
    highest = np.log(num_classes)

    def shares(name, entropy):
        # Rounding carries an entropy across either end.
        entropy = np.clip(numbers(name, entropy).ravel(), 0.0, highest)
        counts, _ = np.histogram(entropy, num_bins, range=(0.0, highest))
        smooth = counts / entropy.size + smoothing
        return smooth / smooth.sum()

    p, q = shares("inside", inside), shares("outside", outside)
    return float(np.sum((p - q) * np.log(p / q)))  # (1)
