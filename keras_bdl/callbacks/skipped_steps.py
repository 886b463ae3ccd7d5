"""Reads past the data that a killed run had trained on already."""


class SkippedSteps:
    """Stands in for a model's `train_function` until it is `undo`ne.

    The first step of a resumed epoch is run in earnest, so that Keras builds
    all that it builds lazily; whoever made this object puts the true state in
    place afterwards. The next steps only read their batches.

    Args:
        model: The model in training.
        unseen_by_epoch: Batches to read before the epoch begins.
        steps: Whether steps of the epoch are to be skipped, too.
    """

    def __init__(self, model, unseen_by_epoch: int, steps: bool):
        self._model = model
        self._train_function = model.train_function
        self._ahead = unseen_by_epoch
        self._steps = steps
        self._logs = None
        model.train_function = self

    def undo(self):
        """Gives the model its own function back."""
        self._model.train_function = self._train_function

    def __call__(self, iterator):
        """Takes the batches of one execution from `iterator`."""
        for _ in range(self._ahead):
            if next(iterator, None) is None:
                raise ValueError(
                    "`skip_seen_data=True` is for data without an end, and "
                    "these end before the place where the killed run was. "
                    "Repeat them, or leave it out."
                )
        self._ahead = 0
        if not self._steps:
            self.undo()
            return self._train_function(iterator)
        if self._logs is None:
            self._logs = self._train_function(iterator)
        else:
            next(iterator)  # or the epoch is over, and Keras is told so
            for _ in range(self._model.steps_per_execution - 1):
                # An execution at the end of an epoch may be shorter.
                if next(iterator, None) is None:
                    break
        return self._logs
