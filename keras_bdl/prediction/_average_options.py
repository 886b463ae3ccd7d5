"""The options of a prediction that change its graph."""

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

from keras_bdl._arguments import check_choice
from keras_bdl.prediction._likelihood import POISSON

PROBIT, MONTE_CARLO, IDENTITY = "probit", "monte_carlo", "identity"
# The links whose result is in closed form, without samples.
EXACT_LINKS = (PROBIT, IDENTITY)


@dataclasses.dataclass(frozen=True)
class AverageOptions:
    """The options of a prediction that change its graph.

    Args:
        task: Argument of `keras_bdl.predict`.
        from_logits: Argument of `keras_bdl.predict`.
        moments: Argument of `keras_bdl.predict`.
        noise: For each flat output, the `noise` of its `Likelihood`. Defaults
            to `None`: the compiled loss has them.
        keep_samples: Argument of `keras_bdl.predict`.
        linearized: Whether the outputs are linear in the weights, around the
            mean of the posterior. Defaults to `False`.
        link: Argument of `keras_bdl.predict`.
        positions: Positions in `model.variables` of the variables that differ
            between samples. Defaults to `()`.
        drops: Whether dropout is on. Defaults to `False`.
        blocks: With a link, the layout of the `CovarianceBlocks`. Defaults to
            `()`.
        covered: With a link, the positions in `model.variables` of the
            variables that `blocks` counts. Defaults to `()`: the trainable
            variables, as in older files.
    """

    task: Any = None
    from_logits: Any = None
    moments: Callable | None = None
    noise: Sequence[Any] | None = None
    keep_samples: bool = False
    linearized: bool = False
    link: str | None = None
    positions: tuple[int, ...] = ()
    drops: bool = False
    blocks: tuple[tuple, ...] = ()
    covered: tuple[int, ...] = ()

    def __post_init__(self):
        if self.moments is not None and not callable(self.moments):
            raise ValueError(
                "`moments` must be a function from the model's outputs to a "
                "pair (mean, variance), or `None`. "
                f"Received: moments={self.moments!r}"
            )

    def get_config(self) -> dict[str, Any]:
        """Returns what all samples share, for a `.keras` file."""
        return {
            "task": self.task,
            "from_logits": self.from_logits,
            "moments": _serialized(self.moments),
            "noise": self.noise and [*map(_serialized_noise, self.noise)],
            "linearized": self.linearized,
            "link": self.link,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict | None = None
    ) -> "AverageOptions":
        """Returns the options that `get_config` described.

        Args:
            config: The result of `get_config`.
            custom_objects: Classes and functions by name. Defaults to `None`.
        """
        moments = _deserialized(config["moments"], custom_objects)
        noise = config.get("noise")  # older files have none
        if noise is not None:
            noise = [_deserialized_noise(one, custom_objects) for one in noise]
        return cls(**{**config, "moments": moments, "noise": noise})


def check_link(link: Any, *, linearized: bool, samples: Any) -> None:
    """Raises an error if `link` does not fit the other arguments.

    Args:
        link: Argument of `keras_bdl.predict`.
        linearized: Whether the outputs are linear in the weights.
        samples: Argument of `keras_bdl.predict`.
    """
    check_choice("link", link, (None, PROBIT, MONTE_CARLO, IDENTITY))
    if link is None:
        return
    if not linearized:
        raise ValueError(
            "`link` needs a linearised network, whose outputs are Gaussian. "
            f"Pass `linearized=True`. Received: link={link!r}, linearized=False"
        )
    if link in EXACT_LINKS and samples is not None:
        raise ValueError(
            f"`samples` must be `None` with `link={link!r}`, which is a closed "
            f"form. Received: samples={samples!r}"
        )


def _serialized_noise(noise):
    if noise is POISSON:
        return "poisson"
    return keras.saving.serialize_keras_object(noise)


def _deserialized_noise(config, custom_objects):
    if config == "poisson":
        return POISSON
    return keras.saving.deserialize_keras_object(config, custom_objects)


def _serialized(moments):
    """Returns `moments` for a config; a likelihood is stored as a whole."""
    if moments is None:
        return None
    owner = getattr(moments, "__self__", None)
    if owner is not None:
        return {"of": keras.saving.serialize_keras_object(owner)}
    return {"function": keras.saving.serialize_keras_object(moments)}


def _deserialized(config, custom_objects):
    if config is None:
        return None
    if "of" in config:
        owner = keras.saving.deserialize_keras_object(
            config["of"], custom_objects
        )
        return owner.moments
    return keras.saving.deserialize_keras_object(
        config["function"], custom_objects
    )
