"""Options of Keras optimizers that would change the posterior."""

_REFUSED = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
)

# Every optimizer config has these two. They have no effect without `use_ema`.
_UNUSED = ("ema_momentum", "ema_overwrite_frequency")


def refuse_options(owner: str, kwargs: dict, *, others=(), instead: str = ""):
    """Raises an error for options that would change the posterior.

    Options without an effect are removed from `kwargs`.

    Args:
        owner: Name of the optimizer.
        kwargs: Keyword arguments for `keras.optimizers.Optimizer`, changed in
            place.
        others: Names of more options to refuse. Defaults to `()`.
        instead: Advice that the error message adds after "Leave them out".
            Defaults to `""`.
    """
    refused = (*_REFUSED, *others)
    changing = sorted(k for k in refused if kwargs.pop(k, None))
    if changing:
        raise ValueError(
            f"`{owner}` targets the posterior, and these options would change "
            f"the target. Leave them out{instead}. Received: {changing}"
        )
    for name in _UNUSED:
        kwargs.pop(name, None)


def drop_options(config: dict, others=()):
    """Removes from a config all options that would change the posterior.

    Args:
        config: The config of an optimizer, changed in place.
        others: Names of more options to remove. Defaults to `()`.
    """
    for name in (*_REFUSED, *_UNUSED, *others):
        config.pop(name, None)
