"""How much a long calculation says."""


def check_verbose(verbose) -> int:
    """Returns what `keras.utils.Progbar` takes for it.

    Args:
        verbose: `"auto"`, `0`, `1` or `2`.
    """
    if verbose not in ("auto", 0, 1, 2):
        raise ValueError(
            '`verbose` must be `"auto"`, `0`, `1` or `2`. '
            f"Received: verbose={verbose!r}"
        )
    return 1 if verbose == "auto" else verbose
