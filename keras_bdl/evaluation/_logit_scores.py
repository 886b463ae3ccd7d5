"""Uncertainties of single inputs from the logits of a classifier.

A `ClassificationPrediction` holds probabilities. They do not determine the
size of the logits, which these scores use.
"""

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import as_array
from keras_bdl._data._checked_inputs import number_blocks


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

    def energy(block):
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


def _by_rows(logits, function):
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


def _is_normalized(block):
    """Returns whether all rows are probabilities or their logarithms."""
    if block.min() >= 0:
        with np.errstate(over="ignore"):
            return bool((np.abs(block.sum(-1) - 1) < 1e-3).all())
    if block.max() <= 1e-3:
        return bool((np.abs(np.exp(block).sum(-1) - 1) < 1e-3).all())
    return False
