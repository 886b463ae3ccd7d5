"""Detection of out-of-distribution inputs by their uncertainty."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import as_array
from keras_bdl._data._checked_inputs import number_blocks
from keras_bdl._data._checked_inputs import numbers
from keras_bdl._data._checked_inputs import probability_blocks
from keras_bdl.evaluation._ranking import MEASURES
from keras_bdl.evaluation._ranking import auroc
from keras_bdl.evaluation._ranking import average_precision
from keras_bdl.evaluation._ranking import fpr_at_tpr
from keras_bdl.evaluation._ranking import uncertainty_of
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import counted_entries

# Keys of an entry in `ClassificationReport.ood`.
RESERVED = (*MEASURES, "num_inputs", "entropy_divergence")
# Bins of the entropy divergence, and what is added to the share in each.
ENTROPY_BINS = 50
SMOOTHING = 1e-7


def ood_detection(inside: ArrayLike, outside: ArrayLike) -> dict[str, float]:
    """Scores how well an uncertainty detects out-of-distribution inputs.

    Use this function for a score of your own. `keras_bdl.evaluate` reports the
    same numbers for the uncertainties of a prediction.

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
          class.

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


def ood_entry(
    name: str,
    inside: ClassificationPrediction,
    outside: ClassificationPrediction,
    scores: Mapping[str, tuple[ArrayLike, ArrayLike]],
) -> dict:
    """Returns the entry of one set in `ClassificationReport.ood`.

    `scores` has pairs of numbers for the inputs inside and outside. Those of
    padding do not count, like padding in the predictions. The results for
    mutual information are NaN if either prediction has a single sample.
    """
    known = counted_entries(inside)
    unknown = counted_entries(outside, name=f"ood[{name!r}]")
    for _ in probability_blocks(f"ood[{name!r}]", unknown.prediction):
        pass  # checks the block
    classes = known.prediction.num_classes
    if unknown.prediction.num_classes != classes:
        raise ValueError(
            f"`ood[{name!r}]` must be a prediction of the same model, with "
            f"{classes} classes. "
            f"Received: {unknown.prediction.num_classes} classes"
        )
    entry: dict[str, Any] = {"num_inputs": unknown.prediction.entropy.size}
    for measure in MEASURES:
        used, low = uncertainty_of(known.prediction, measure)
        used_outside, high = uncertainty_of(unknown.prediction, measure)
        entry[measure] = ood_detection(low, high)
        if not used == used_outside == measure:
            entry[measure] = dict.fromkeys(entry[measure], np.nan)
    for score, pair in scores.items():
        if score in RESERVED:
            raise ValueError(
                f"`scores` must have names other than {RESERVED}. "
                f"Received: {score!r}"
            )
        kept = known.kept, unknown.kept
        entry[score] = ood_detection(*_checked_pair(score, pair, kept))
    entry["entropy_divergence"] = entropy_divergence(
        known.prediction.entropy, unknown.prediction.entropy, classes
    )
    return entry


def _checked_pair(name: str, pair: Any, kept: tuple) -> list[np.ndarray]:
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
    inside: ArrayLike, outside: ArrayLike, num_classes: int
) -> float:
    """Returns the symmetrised KL divergence between two sets of entropies.

    Both sets are counted in the same bins of equal width on
    `[0, log(num_classes)]`. With `p_k` and `q_k` the shares of the two sets in
    bin k, after adding `SMOOTHING` and normalising again, the result is

        KL(p || q) + KL(q || p) = sum_k (p_k - q_k) log(p_k / q_k)        (1)

    in nats. Two sets that fill one bin each, but different bins, give about
    `2 log(1 / SMOOTHING)`.

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), table 1,
          which does not state its bins
    """
    highest = np.log(num_classes)

    def shares(name: str, entropy: ArrayLike) -> np.ndarray:
        # Rounding may move an entropy below zero or above the maximum.
        entropy = np.clip(numbers(name, entropy).ravel(), 0.0, highest)
        counts, _ = np.histogram(entropy, ENTROPY_BINS, range=(0.0, highest))
        smooth = counts / entropy.size + SMOOTHING
        return smooth / smooth.sum()

    p, q = shares("inside", inside), shares("outside", outside)
    return float(np.sum((p - q) * np.log(p / q)))  # (1)


def ood_section(name: str, entry: dict) -> tuple[str, list]:
    """Returns the title and the rows of the table of one set."""
    rows: list = [["", "AUROC", "AUPR in", "AUPR out", "FPR95"]]
    usual = ("max_probability", "entropy", "mutual_information")
    for measure in dict.fromkeys((*usual, *entry)):
        if isinstance(entry[measure], dict):
            rows.append([measure.replace("_", " "), *entry[measure].values()])
    rows.append(["entropy KL, both ways", entry["entropy_divergence"]])
    return f"Out of distribution: {name}, {entry['num_inputs']} inputs", rows


def energy_score(logits: ArrayLike, *, temperature: float = 1.0) -> np.ndarray:
    """Returns the energy of each input; high for unknown inputs.

    With the logits `f_k` and the temperature T,

        energy = -T log sum_k exp(f_k / T)                                (1)

    Use the energy, like an entropy, in `ood_detection`. For the samples of a
    posterior, average the energies over the samples. A logit of plus infinity,
    or all of minus infinity, gives an energy of minus or plus infinity.

    Args:
        logits: Outputs of a classifier before the softmax, classes on the
            last axis. Log probabilities do not work: their energy is zero.
        temperature: T. Defaults to `1.0`.

    Returns:
        An array without the class axis.

    Example:

    ```python
    known, unknown = model.predict(x_test), model.predict(9.0 * x_test)
    keras_bdl.evaluation.ood_detection(
        keras_bdl.evaluation.energy_score(known),
        keras_bdl.evaluation.energy_score(unknown),
    )
    ```

    Reference:
        - [Liu et al., 2020](https://arxiv.org/abs/2010.03759), eq. 4
    """
    check_number("temperature", temperature, above=0.0)

    def energy(block: np.ndarray) -> np.ndarray:
        highest = block.max(-1, keepdims=True)
        # One infinite logit decides, and infinity minus itself is NaN.
        centre = np.where(np.isfinite(highest), highest, 0.0)
        with np.errstate(over="ignore", divide="ignore"):
            total = np.exp((block - centre) / temperature).sum(-1)
            return -(centre[:, 0] + temperature * np.log(total))  # (1)

    return _by_rows(logits, energy)


def max_logit_score(logits: ArrayLike) -> np.ndarray:
    """Returns minus the highest logit of each input; high for unknown inputs.

    Use the score, like an entropy, in `ood_detection`.

    Args:
        logits: Outputs of a classifier before the softmax, classes on the
            last axis.

    Returns:
        An array without the class axis.

    Example:

    ```python
    keras_bdl.evaluation.max_logit_score(model.predict(x, verbose=0))
    ```

    Reference:
        - [Hendrycks et al., 2022](https://arxiv.org/abs/1911.11132)
    """
    return _by_rows(logits, lambda block: -block.max(-1))


def _by_rows(
    logits: ArrayLike, function: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    logits = as_array("logits", logits)
    if logits.ndim < 2 or logits.shape[-1] < 2:
        raise ValueError(
            "`logits` must have the examples on the first axis and at least "
            f"two classes on the last. Received: shape {logits.shape}"
        )
    scores = np.empty(logits.size // logits.shape[-1])
    normalized = True
    for rows, block in number_blocks("logits", logits):
        scores[rows] = function(block)
        normalized = normalized and _is_normalized(block)
    if normalized:
        raise ValueError(
            "`logits` must be outputs before the softmax, whose size tells "
            "known from unknown inputs. Remove the softmax from the model. "
            f"Received: {scores.size} rows that are all probabilities, or "
            "logarithms of probabilities"
        )
    return scores.reshape(logits.shape[:-1])


def _is_normalized(block: np.ndarray) -> bool:
    """Returns whether all rows are probabilities or their logarithms."""
    if block.min() >= 0:
        with np.errstate(over="ignore"):
            return bool((np.abs(block.sum(-1) - 1) < 1e-3).all())
    if block.max() <= 1e-3:
        return bool((np.abs(np.exp(block).sum(-1) - 1) < 1e-3).all())
    return False
