"""Detection of out-of-distribution inputs by their uncertainty."""

from collections.abc import Mapping

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_count
from keras_bdl._data._checked_inputs import as_array
from keras_bdl._data._checked_inputs import numbers
from keras_bdl._data._checked_inputs import probability_blocks
from keras_bdl.evaluation._ranking import auroc
from keras_bdl.evaluation._ranking import average_precision
from keras_bdl.evaluation._ranking import fpr_at_tpr
from keras_bdl.evaluation._referral import MEASURES
from keras_bdl.evaluation._referral import uncertainty_of
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import counted_entries

# Keys of an entry in `ClassificationReport.ood`.
RESERVED = (*MEASURES, "num_inputs", "entropy_divergence")


def ood_detection(inside: ArrayLike, outside: ArrayLike) -> dict[str, float]:
    """Scores how well an uncertainty detects out-of-distribution inputs.

    Args:
        inside: Uncertainty of each in-distribution input.
        outside: Uncertainty of each out-of-distribution input.

    Returns:
        A dict with

        - `auroc`: area under the receiver operating characteristic,
        - `aupr_in`: average precision with the in-distribution inputs as the
          positive class,
        - `aupr_out`: average precision with the out-of-distribution inputs as
          the positive class,
        - `fpr95`: fraction of out-of-distribution inputs that are accepted, if
          the threshold accepts 95 % of the in-distribution inputs.
          Torch-uncertainty has the out-of-distribution inputs as the positive
          class: `keras_bdl.evaluation.fpr_at_tpr(outside, inside)`.

    Example:

    ```python
    far = keras_bdl.predict(model, 9.0 * x_test, posterior)
    keras_bdl.evaluation.ood_detection(prediction.entropy, far.entropy)
    ```
    """
    inside = numbers("inside", inside).ravel()
    outside = numbers("outside", outside).ravel()
    return {
        "auroc": auroc(-inside, -outside),
        "aupr_in": average_precision(-inside, -outside),
        "aupr_out": average_precision(outside, inside),
        "fpr95": fpr_at_tpr(-inside, -outside, tpr=0.95),
    }


def ood_scores(
    inside: ClassificationPrediction,
    outside: ClassificationPrediction,
    *,
    scores: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
) -> dict[str, dict[str, float]]:
    """Scores how well each uncertainty detects out-of-distribution inputs.

    Args:
        inside: Prediction for in-distribution inputs.
        outside: Prediction for out-of-distribution inputs.
        scores: Dict from the name of a further score to the pair of its
            values for the inputs inside and outside, high for unknown inputs.
            Those of padding do not count, like padding in the predictions.
            Use it for `energy_score`, `max_logit_score` and `FeatureDensity`,
            which a prediction of probabilities does not hold. Defaults to
            `None`.

    Returns:
        A dict with the results of `ood_detection` for `mutual_information`
        (NaN if either prediction has a single sample), `entropy`,
        `max_probability` and the further scores.

    Example:

    ```python
    inside = keras_bdl.predict(model, x_test, posterior)
    outside = keras_bdl.predict(model, 9.0 * x_test, posterior)
    logits = model.predict(x_test), model.predict(9.0 * x_test)
    energies = tuple(map(keras_bdl.evaluation.energy_score, logits))
    found = keras_bdl.evaluation.ood_scores(
        inside, outside, scores={"energy": energies}
    )
    found["energy"]["auroc"]
    ```
    """
    both = counted_entries(inside), counted_entries(outside)
    inside, outside = (entries.prediction for entries in both)
    found = {}
    for measure in MEASURES:
        used, known = uncertainty_of(inside, measure)
        used_outside, unknown = uncertainty_of(outside, measure)
        found[measure] = ood_detection(known, unknown)
        if not used == used_outside == measure:
            found[measure] = dict.fromkeys(found[measure], np.nan)
    kept = both[0].kept, both[1].kept
    for name, pair in (scores or {}).items():
        if name in RESERVED:
            raise ValueError(
                f"`scores` must have names other than {RESERVED}. "
                f"Received: {name!r}"
            )
        known, unknown = _checked_pair(name, pair, kept)
        found[name] = ood_detection(known, unknown)
    return found


def _checked_pair(name, pair, kept):
    sizes = kept[0].size, kept[1].size
    if isinstance(pair, (tuple, list)) and len(pair) == 2:
        known, unknown = (
            as_array(f"scores[{name!r}]", part, "float64") for part in pair
        )
        if (known.size, unknown.size) == sizes:
            return [
                numbers(f"scores[{name!r}]", part.ravel()[chosen])
                for part, chosen in zip((known, unknown), kept, strict=True)
            ]
        received = f"{known.size} and {unknown.size} scores"
    else:
        received = f"{type(pair).__name__}"
    raise ValueError(
        f"`scores[{name!r}]` must be a pair: one score for each of the "
        f"{sizes[0]} inputs inside, and one for each of the {sizes[1]} inputs "
        f"outside. Received: {received}"
    )


def entropy_divergence(
    inside: ArrayLike,
    outside: ArrayLike,
    *,
    num_classes: int,
    num_bins: int = 50,
    smoothing: float = 1e-7,
) -> float:
    """Returns the symmetrised KL divergence between two sets of entropies.

    The function counts both sets in the same bins of equal width on
    `[0, log(num_classes)]`. Let `p_k` and `q_k` be the fractions of the two
    sets in bin k, after adding `smoothing` and normalising again. The
    divergence is

        KL(p || q) + KL(q || p) = sum_k (p_k - q_k) log(p_k / q_k)        (1)

    in nats. The divergence depends on `num_bins` and `smoothing`: two sets that
    fill one bin each, but different bins, give about `2 log(1 / smoothing)`.

    Args:
        inside: Predictive entropies of in-distribution inputs, in nats.
        outside: Predictive entropies of out-of-distribution inputs.
        num_classes: Number of classes.
        num_bins: Number of bins. Defaults to `50`.
        smoothing: Added to the fraction in every bin. Defaults to `1e-7`.

    Example:

    ```python
    known, unknown = prediction.entropy[:32], prediction.entropy[32:]
    keras_bdl.evaluation.entropy_divergence(known, unknown, num_classes=2)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), table 1,
          which does not state its bins
    """
    check_count("num_bins", num_bins)
    highest = np.log(num_classes)

    def shares(name, entropy):
        # Rounding may move an entropy below zero or above the maximum.
        entropy = np.clip(numbers(name, entropy).ravel(), 0.0, highest)
        counts, _ = np.histogram(entropy, num_bins, range=(0.0, highest))
        smooth = counts / entropy.size + smoothing
        return smooth / smooth.sum()

    p, q = shares("inside", inside), shares("outside", outside)
    return float(np.sum((p - q) * np.log(p / q)))  # (1)


def ood_entry(
    name: str,
    inside: ClassificationPrediction,
    outside: ClassificationPrediction,
    scores: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
) -> dict:
    """Returns the entry of one set in `ClassificationReport.ood`.

    Args:
        name: Name of the set.
        inside: Prediction for in-distribution inputs.
        outside: Prediction for out-of-distribution inputs, which is checked.
        scores: Argument of `ood_scores`. Defaults to `None`.
    """
    whole = inside, outside
    inside = counted_entries(inside).prediction
    outside = counted_entries(outside, name=f"ood[{name!r}]").prediction
    for _ in probability_blocks(f"ood[{name!r}]", outside):
        pass  # checks the block
    if outside.num_classes != inside.num_classes:
        raise ValueError(
            f"`ood[{name!r}]` must be a prediction of the same model, with "
            f"{inside.num_classes} classes. "
            f"Received: {outside.num_classes} classes"
        )
    return {
        "num_inputs": outside.entropy.size,
        **ood_scores(*whole, scores=scores),
        "entropy_divergence": entropy_divergence(
            inside.entropy, outside.entropy, num_classes=inside.num_classes
        ),
    }


def ood_section(name: str, entry: dict) -> tuple[str, list]:
    """Returns the title and the rows of the table of one set.

    Args:
        name: Name of the set.
        entry: Result of `ood_entry`.
    """
    rows: list = [["", "AUROC", "AUPR in", "AUPR out", "FPR95"]]
    usual = ("max_probability", "entropy", "mutual_information")
    for measure in dict.fromkeys((*usual, *entry)):
        if isinstance(entry[measure], dict):
            rows.append([measure.replace("_", " "), *entry[measure].values()])
    rows.append(["entropy KL, both ways", entry["entropy_divergence"]])
    return f"Out of distribution: {name}, {entry['num_inputs']} inputs", rows
