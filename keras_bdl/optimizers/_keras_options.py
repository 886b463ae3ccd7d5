"""Options of Keras optimizers that would change the posterior."""

from typing import Any
from typing import TypedDict

_REFUSED = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
)
# Every optimizer config has these two. They have no effect without `use_ema`.
_UNUSED = ("ema_momentum", "ema_overwrite_frequency")


class NoOptions(TypedDict, total=False):
    """No options: a type checker refuses all, the constructor explains why."""


def refuse_options(
    optimizer: Any, options: Any, instead: str, others: tuple = ()
) -> None:
    """Raises for options that change the posterior; removes those without use.

    `instead` is the advice that follows "Leave them out" in the error.
    """
    changing = sorted(k for k in (*_REFUSED, *others) if options.pop(k, None))
    if changing:
        raise ValueError(
            f"`{type(optimizer).__name__}` targets the posterior, and these "
            "options would change the target. Leave them out"
            f"{instead}. Received: {changing}"
        )
    for name in _UNUSED:
        options.pop(name, None)


def drop_options(config: dict, others: tuple = ()) -> dict:
    """Returns the config of an optimizer without the options refused above."""
    unwanted = (*_REFUSED, *_UNUSED, *others)
    return {k: v for k, v in config.items() if k not in unwanted}
