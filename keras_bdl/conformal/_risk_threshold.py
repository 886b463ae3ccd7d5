"""The largest threshold of sets whose mean loss keeps a bound."""

import bisect
import math
from fractions import Fraction

import numpy as np

from keras_bdl.conformal._label_losses import LabelLosses

# Odds that grow by 0.5 %, between the whole set and the empty one.
THRESHOLDS = np.concatenate(
    [[0.0], 1 / (1 + np.exp(-np.arange(-40, 17, 0.005))), [2.0]]
)


class LossSums:
    """Sums of the losses of examples at the thresholds of a grid.

    Memory does not grow with the number of examples.

    Attributes:
        count: Number of examples.
    """

    def __init__(self):
        self.count = 0
        self._sums = np.zeros(len(THRESHOLDS))
        # Whether no loss was rounded, nor their sum.
        self._exact = np.ones(len(THRESHOLDS), bool)

    def add(self, losses: LabelLosses) -> None:
        """Adds examples.

        Args:
            losses: Their losses, by a loss with a name.
        """
        for probs in losses.of_true_labels():
            # A label is missed from the first threshold above it.
            places = np.searchsorted(THRESHOLDS, probs, side="right")
            missed = np.bincount(places, minlength=len(THRESHOLDS)).cumsum()
            of_example = losses.of_missed(missed, len(probs))
            self._sums += of_example
            self._exact &= _is_exact(of_example)
            self.count += 1

    def largest_threshold(self, allowed: Fraction) -> float:
        """Returns the largest threshold of the grid with a low sum, or 0.

        Args:
            allowed: Largest allowed sum.
        """
        places = range(len(THRESHOLDS))
        first = bisect.bisect_right(places, allowed, key=self._total)
        return float(THRESHOLDS[max(first - 1, 0)])

    def _total(self, place):
        """Returns a sum, never below the exact one."""
        total = Fraction(float(self._sums[place]))
        if self._exact[place] and total < 2**32:
            return total
        # Each loss is rounded, and each addition.
        return total * (1 + (self.count + 1) * Fraction(2.0**-52))


def search_threshold(
    calibration: LabelLosses, whole: np.ndarray, allowed: Fraction
) -> float:
    """Returns the largest threshold with a low sum of losses, 0 if none has.

    Args:
        calibration: Losses of the examples.
        whole: Losses of the sets of all labels.
        allowed: Largest allowed sum.
    """
    losses_low, losses_high = whole, calibration.at(2.0)
    _check_monotone(losses_low, losses_high)
    if _total(whole) > allowed:
        return 0.0
    if _total(losses_high) <= allowed:
        return 2.0  # even empty sets have a low loss
    # The sum of `low` is allowed, and that of no threshold above `high` is.
    low, high = 0.0, calibration.below
    while low < high:
        middle = _between(low, high)
        losses = calibration.at(middle)
        _check_monotone(losses_low, losses)
        _check_monotone(losses, losses_high)
        if _total(losses) <= allowed:
            low, losses_low = calibration.above, losses
        else:
            high, losses_high = calibration.below, losses
    return low


def _between(low, high):
    """Returns the float half-way between two, by count, above the lower."""
    # The bits of floats above zero are integers in the same order.
    first, last = np.array([low, high]).view("int64").tolist()
    return float(np.array(last - (last - first) // 2).view("float64"))


def _total(losses):
    """Returns the sum of losses, never below the exact one."""
    total = Fraction(math.fsum(losses))
    if np.all(_is_exact(losses)) and abs(total) < 2**32:
        return total  # exact: no loss was rounded, nor was the sum
    # A loss such as 1/3 is rounded, perhaps down.
    return total + Fraction(1e-12) * Fraction(math.fsum(np.abs(losses)))


def _is_exact(losses):
    """Returns whether each loss is a multiple of 2^-20."""
    steps = losses * 2.0**20
    return steps == np.rint(steps)


def _check_monotone(of_larger_set, of_smaller_set):
    # Rounding may change the order of sums.
    if np.any(of_larger_set > of_smaller_set + 1e-9):
        raise ValueError(
            "`loss` must not be larger for a larger set. Conformal risk "
            "control holds for such losses only. Received: a loss that grew "
            f"by {np.max(of_larger_set - of_smaller_set):.4g}"
        )
