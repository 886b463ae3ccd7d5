"""The meaning of a model's output: task, and logits or probabilities."""

import dataclasses
from typing import Any

import keras

from keras_bdl._arguments import check_choice
from keras_bdl.likelihoods._loss_as_likelihood import loss_function

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
)
_TASKS = ("classification", "binary", "regression")


class PoissonNoise:
    """The noise of counts, whose variance is their mean."""

    def moments(self, outputs: Any) -> tuple[Any, Any]:
        """Returns the mean and the variance of the counts.

        Args:
            outputs: The rates that the network predicts.
        """
        return outputs, outputs


POISSON = PoissonNoise()


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """The meaning of a model's output.

    Args:
        task: `"classification"` (the last axis is one distribution over
            classes), `"binary"` (each entry is a Bernoulli distribution) or
            `"regression"`.
        from_logits: Whether a classifier returns logits instead of
            probabilities. Defaults to `False`.
        noise: In a regression, an object whose method `moments` turns the
            output into means and variances, such as a
            `keras_bdl.likelihoods.Gaussian`. Defaults to `None`: the output
            is the mean, and the variance is unknown.
    """

    task: str
    from_logits: bool = False
    noise: Any = None

    @property
    def is_of_counts(self) -> bool:
        """Whether the output is the rate of a Poisson distribution."""
        return self.noise is POISSON

    def moments(self, output: Any) -> dict[str, Any]:
        """Returns the `"mean"` of a regression, and the known `"variance"`.

        Args:
            output: The output, at least in float32.
        """
        if self.noise is None:
            return {"mean": output}
        mean, variance = self.noise.moments(output)
        return {"mean": mean, "variance": variance}

    @classmethod
    def of_loss(cls, loss: Any) -> "Likelihood | None":
        """Returns the likelihood of a compiled loss, or `None` if unknown.

        Args:
            loss: A loss of Keras: an object, a function or a name.
        """
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
        if loss is keras.losses.poisson:
            return cls("regression", noise=POISSON)
        if loss in _REGRESSION:
            return cls("regression")
        return None

    @classmethod
    def resolve(cls, task: Any, from_logits: Any, loss: Any) -> "Likelihood":
        """Returns the likelihood that the arguments or the loss define.

        An argument that is not `None` replaces the value from the loss.

        Args:
            task: Argument of `keras_bdl.predict` for one output.
            from_logits: Argument of `keras_bdl.predict` for one output.
            loss: The compiled loss of the output, or `None`.
        """
        check_choice("task", task, (None, *_TASKS))
        check_choice("from_logits", from_logits, (None, True, False))
        if hasattr(loss, "moments") and task in (None, "regression"):
            return cls("regression", noise=loss)
        compiled = cls.of_loss(loss)
        if task == "regression":
            if compiled is None or compiled.task != task:
                return cls(task)
            return compiled
        if compiled is not None and compiled.task == "regression":
            if task is None:
                return compiled
            compiled = None
        if from_logits is None and compiled is not None:
            from_logits = compiled.from_logits
        if task is None and compiled is not None:
            task = compiled.task
        if task is None or from_logits is None:
            raise ValueError(
                "`task` and `from_logits` must be given, because the compiled "
                "loss does not say what the output means. "
                'Write `task="classification", from_logits=True` for logits, '
                "`from_logits=False` for probabilities, or "
                '`task="regression"`. '
                f"Received: task={task!r}, from_logits={from_logits}, "
                f"loss={loss!r}"
            )
        return cls(task, from_logits)
