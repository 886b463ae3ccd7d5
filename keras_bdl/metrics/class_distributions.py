"""Labels and outputs of a classifier, both as distributions over classes.

A metric runs inside a compiled step and cannot raise there. What is not a
distribution over the classes (a label out of range, a row of logits declared
as probabilities, NaN) becomes a row of NaN, so that the metric shows NaN
instead of a number that looks right.
"""

from keras import ops

# Wide enough for the rounding of half precision over a thousand classes.
SUM_TOLERANCE = 2e-2


def check_from_logits(from_logits):
    """Raises an error unless the value is `True`, `False` or `None`."""
    if from_logits not in (None, True, False):
        raise ValueError(
            "`from_logits` must be `None`, `True` or `False`. "
            f"Received: from_logits={from_logits!r}"
        )


def probabilities(y_pred, from_logits: bool, dtype: str):
    """Returns probabilities of at least two classes on the last axis.

    A last axis of size 1 is a Bernoulli output: the probability, or the
    logit, of class 1.
    """
    if from_logits:
        return ops.exp(log_probabilities(y_pred, from_logits, dtype))
    y_pred = ops.cast(y_pred, dtype)
    if y_pred.shape[-1] == 1:
        y_pred = ops.concatenate([1.0 - y_pred, y_pred], axis=-1)
    return _nan_unless_distribution(y_pred)


def log_probabilities(y_pred, from_logits: bool, dtype: str):
    """Returns the logarithm of `probabilities`, from logits without loss."""
    if not from_logits:
        return ops.log(probabilities(y_pred, from_logits, dtype))
    y_pred = ops.cast(y_pred, dtype)
    if y_pred.shape[-1] == 1:
        return ops.log_sigmoid(ops.concatenate([-y_pred, y_pred], axis=-1))
    return ops.log_softmax(y_pred, axis=-1)


def label_distribution(y_true, probs):
    """Returns labels, integers or one-hot or soft, in the shape of the output.

    Args:
        y_true: Integers of shape `(...)` or `(..., 1)`, or one row of
            probabilities per example, `(..., classes)`.
        probs: Result of `probabilities` or its logarithm, `(..., classes)`.
    """
    y_true = ops.cast(y_true, probs.dtype)
    classes, rank = probs.shape[-1], len(probs.shape)
    if len(y_true.shape) == rank - 1:
        y_true = ops.expand_dims(y_true, -1)
    if len(y_true.shape) != rank or y_true.shape[-1] not in (1, classes):
        raise ValueError(
            "`y_true` must hold one integer per example or one row of "
            f"{classes} class probabilities per example, next to an output of "
            f"shape {tuple(probs.shape)}. Received: y_true of shape "
            f"{tuple(y_true.shape)}"
        )
    if y_true.shape[-1] == 1:
        one_hot = ops.equal(y_true, ops.arange(classes, dtype=y_true.dtype))
        y_true = ops.cast(one_hot, y_true.dtype)
    return _nan_unless_distribution(y_true)


def _nan_unless_distribution(rows):
    """Keeps rows of non-negative numbers that sum to one."""
    error = ops.abs(ops.sum(rows, axis=-1, keepdims=True) - 1.0)
    lowest = ops.min(rows, axis=-1, keepdims=True)
    valid = ops.logical_and(error < SUM_TOLERANCE, lowest >= 0.0)
    return ops.where(valid, rows, float("nan"))


def example_weights(sample_weight, values):
    """Returns the weights in the shape of the values, ones if not given."""
    if sample_weight is None:
        return ops.ones_like(values)
    weight = ops.cast(sample_weight, values.dtype)
    rank = len(values.shape)
    if len(weight.shape) == rank + 1 and weight.shape[-1] == 1:
        weight = ops.squeeze(weight, -1)
    while len(weight.shape) < rank:
        weight = ops.expand_dims(weight, -1)
    return ops.broadcast_to(weight, ops.shape(values))


class ClassProbabilities:
    """Says whether outputs are logits: the argument, or the compiled loss.

    To be mixed into a metric with an attribute `from_logits`, which is what
    the user gave: `True`, `False` or `None`.
    """

    _of_loss = None

    def learn(self, likelihood):
        """Takes from the compiled loss whether outputs are logits.

        Args:
            likelihood: A `Likelihood` with `task` and `from_logits`, or
                `None` where the loss does not tell.
        """
        if likelihood is None or likelihood.task == "regression":
            self._of_loss = None
            return
        self._of_loss = likelihood.from_logits
        if self.from_logits not in (None, self._of_loss):
            raise ValueError(
                f"`from_logits` of `{type(self).__name__}` must agree with the "
                "compiled loss; leave it out. Received: "
                f"from_logits={self.from_logits}, and a loss with "
                f"from_logits={self._of_loss}"
            )

    def outputs_are_logits(self) -> bool:
        """Returns whether outputs are logits; raises where nothing tells."""
        known = self._of_loss if self.from_logits is None else self.from_logits
        if known is None:
            name = type(self).__name__
            raise ValueError(
                "`from_logits` must be given, unless a `keras_bdl.Model` is "
                "compiled with a cross-entropy of Keras, which tells it. Write "
                f"`{name}(from_logits=True)` for logits, or "
                "`from_logits=False` for probabilities. "
                f"Received: {name} with from_logits=None"
            )
        return known
