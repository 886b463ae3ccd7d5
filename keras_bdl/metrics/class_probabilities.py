"""Whether the outputs that a metric receives are logits."""


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
