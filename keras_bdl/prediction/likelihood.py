"""What the output of a model says about a label."""

import dataclasses

import keras

from keras_bdl.likelihoods.implied_noise import loss_function

_CATEGORICAL = (
    keras.losses.categorical_crossentropy,
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_generalized_cross_entropy,
    keras.losses.kl_divergence,
)
_BINARY = (
    keras.losses.binary_crossentropy,
    keras.losses.binary_focal_crossentropy,
)
_REGRESSION = (
    keras.losses.mean_squared_error,
    keras.losses.mean_absolute_error,
    keras.losses.mean_absolute_percentage_error,
    keras.losses.mean_squared_logarithmic_error,
    keras.losses.huber,
    keras.losses.log_cosh,
    keras.losses.poisson,
)
_TASKS = ("classification", "binary", "regression")


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """What the output of a model says about a label.

    Args:
        task: `"classification"` (one distribution over the last axis),
            `"binary"` (every entry a Bernoulli distribution of its own) or
            `"regression"`.
        from_logits: Whether a classifier gives logits and not
            probabilities. Defaults to `False`.
    """

    task: str
    from_logits: bool = False

    @classmethod
    def of_loss(cls, loss):
        """Returns what a compiled loss says, or `None` if it is unknown."""
        loss, config = loss_function(loss)
        logits = config.get("from_logits", False)
        if loss in _CATEGORICAL:
            if config.get("axis", -1) != -1:
                raise ValueError(
                    "The loss must have the classes on the last axis. "
                    f"Received: a loss with axis={config['axis']}"
                )
            return cls("classification", logits)
        if loss in _BINARY:
            return cls("binary", logits)
        if loss in _REGRESSION:
            return cls("regression")
        return None

    @classmethod
    def resolve(cls, task, from_logits, loss):
        """Returns what the user says, completed by what the loss says."""
        if task not in (None, *_TASKS):
            raise ValueError(
                f"`task` must be `None` or one of {_TASKS}. "
                f"Received: task={task!r}"
            )
        if from_logits not in (None, True, False):
            raise ValueError(
                "`from_logits` must be `None`, `True` or `False`. "
                f"Received: from_logits={from_logits!r}"
            )
        if task == "regression":
            return cls(task)
        told = cls.of_loss(loss)
        if told is not None and told.task == "regression" and task:
            told = None
        if from_logits is None and told is not None:
            from_logits = told.from_logits
        if task is None and told is not None:
            task = told.task
        if task is None or from_logits is None:
            raise ValueError(
                "`task` and `from_logits` must be given, because the model is "
                "not compiled with a loss that tells what its output means. "
                'Write `task="classification", from_logits=True` for logits, '
                "`from_logits=False` for probabilities, or "
                '`task="regression"`. '
                f"Received: task={task!r}, from_logits={from_logits}, "
                f"loss={loss!r}"
            )
        return cls(task, from_logits)
