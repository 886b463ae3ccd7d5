"""Checks of arguments of optimizers."""

import math
import numbers

# Options of Keras's optimizers that would make another posterior of it.
REFUSED = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "gradient_accumulation_steps",
)

# These come with every config, and mean nothing without the others.
_UNUSED = ("ema_momentum", "ema_overwrite_frequency")


def refuse_options(owner: str, kwargs, others=(), instead: str = ""):
    """Takes out of `kwargs` what is of no effect; raises for the refused.

    Args:
        owner: Name of the optimizer.
        kwargs: Keyword arguments for `keras.optimizers.Optimizer`, changed.
        others: Further names to refuse. Defaults to `()`.
        instead: What to do, for the message. Defaults to `""`.
    """
    refused = (*REFUSED, *others)
    changing = sorted(k for k in refused if kwargs.pop(k, None))
    if changing:
        raise ValueError(
            f"`{owner}` fits the posterior, and these options would make it "
            f"another one; leave them out{instead}. Received: {changing}"
        )
    for name in _UNUSED:
        kwargs.pop(name, None)


def drop_options(config, others=()):
    """Takes out of a config what `refuse_options` refuses.

    Args:
        config: The config of an optimizer, changed.
        others: Further names. Defaults to `()`.
    """
    for name in (*REFUSED, *_UNUSED, *others):
        config.pop(name, None)


def check_number(
    name: str,
    value,
    *,
    above=None,
    at_least=None,
    below=math.inf,
    integer: bool = False,
):
    """Raises an error unless a number lies where it has to.

    Args:
        name: The argument.
        value: What came for it.
        above: Number that it must exceed. Defaults to `None`.
        at_least: Smallest number. Defaults to `None`.
        below: Number that it must stay below. Defaults to `math.inf`.
        integer: Whether it must be an integer. Defaults to `False`.
    """
    kind = numbers.Integral if integer else numbers.Real
    if (
        isinstance(value, kind)
        and not isinstance(value, bool)
        and (above is None or value > above)
        and (at_least is None or value >= at_least)
        and value < below
    ):
        return
    noun = "an integer" if integer else "a number"
    bounds = [f"above {above}"] if above is not None else []
    bounds += [f"from {at_least} on"] if at_least is not None else []
    bounds += [f"below {below}"] if below < math.inf else []
    raise ValueError(
        f"`{name}` must be {noun} {' and '.join(bounds)}. "
        f"Received: {name}={value!r}"
    )
