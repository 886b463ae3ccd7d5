"""The scores of all outputs of a model, whose labels are independent."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl._random._noise import fold_in
from keras_bdl.laplace._scores import Scores
from keras_bdl.laplace._scores import ScoresAt
from keras_bdl.laplace._scores_of_loss import scores_of_loss
from keras_bdl.prediction._outputs import per_output


class ScoresOfOutputs:
    """The `Scores` of each output of a model.

    Given the outputs, the labels of different outputs are independent. So the
    Fisher information of all outputs is the sum of those of each, and a vector
    v_k of one output has zeros for all others.

    Args:
        loss: The losses, in any structure that `compile` accepts.
    """

    def __init__(self, loss: Any):
        self._loss = loss
        losses = keras.tree.flatten(loss)
        if len(losses) > 1 and None in losses:
            raise ValueError(
                "`fit_laplace` needs a loss for each output, because it draws "
                "labels of all outputs. Make a model without the other "
                "outputs: `keras.Model(model.inputs, outputs)`. "
                f"Received: loss={loss!r}"
            )
        self._scores = [scores_of_loss(one) for one in losses]

    @property
    def depends_on_outputs(self) -> bool:
        """Whether an average over the outputs is another matrix."""
        return any(scores.depends_on_outputs for scores in self._scores)

    def options(self) -> dict[str, Any]:
        """Returns the arguments of `keras_bdl.predict` for the loss."""
        if len(self._scores) == 1:
            return self._scores[0].options()
        return {}  # the compiled losses say the same

    def check_validation(self) -> None:
        """Raises an error if only a compiled loss can make predictions."""
        if not self.options():
            raise ValueError(
                '`prior_precision="validation"` needs the Poisson loss, or the '
                "losses of several outputs, in `compile`, so that predictions "
                "have their noise. Compile the model with this loss, and leave "
                f"`loss` out. Received: loss={self._loss!r}"
            )

    def of(self, model: keras.Model, outputs: Any) -> list[Scores]:
        """Returns the scores of each of the flattened outputs.

        Args:
            model: The model.
            outputs: Its nested outputs.
        """
        flat = keras.tree.flatten(outputs)
        if len(flat) == 1 and len(self._scores) == 1:
            found = self._scores
        else:
            names = getattr(model, "output_names", None)
            losses = per_output("loss", self._loss, outputs, names=names)
            found = [scores_of_loss(one) for one in losses]
        return [
            scores.of_outputs(output)
            for scores, output in zip(found, flat, strict=True)
        ]


def expected(
    scores: Sequence[Scores | ScoresAt], outputs: Sequence[Any]
) -> tuple[Any, Callable]:
    """Returns K and a function from k < K to a list with v_k for each output.

    The sum of all `v_k v_k^T` is the Fisher information of the labels.

    Args:
        scores: The scores of each output.
        outputs: The outputs.
    """
    parts = [
        one.expected(output)
        for one, output in zip(scores, outputs, strict=True)
    ]
    if len(parts) == 1:
        ((count, score),) = parts
        return count, lambda k: [score(k)]

    def vectors(k):
        found, start = [], 0
        for count, score in parts:
            own = ops.clip(k - start, 0, count - 1)
            is_own = ops.logical_and(k >= start, k < start + count)
            vector = score(own)
            found.append(ops.where(is_own, vector, ops.zeros_like(vector)))
            start += count
        return found

    return sum(count for count, _ in parts), vectors


def drawn(
    scores: Sequence[Scores | ScoresAt],
    outputs: Sequence[Any],
    samples: int,
    seed: Any,
) -> tuple[int, Callable]:
    """Returns K and a function from k < K to a list with v_k for each output.

    The sum of all `v_k v_k^T` has the Fisher information as expectation: the
    products of two outputs have the expectation 0.

    Args:
        scores: The scores of each output.
        outputs: The outputs.
        samples: K, the number of labels for each entry.
        seed: A tensor of two integers.
    """
    seeds = [seed]
    if len(scores) > 1:
        seeds = [fold_in(seed, number) for number in range(len(scores))]
    parts = [
        one.drawn(output, samples, own)
        for one, output, own in zip(scores, outputs, seeds, strict=True)
    ]
    return samples, lambda k: [score(k) for _, score in parts]
