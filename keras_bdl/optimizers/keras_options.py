"""Options of Keras that an optimizer of ours refuses."""

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
