"""Memory that a large result would need, compared with what is free."""

import os


def check_memory(what: str, nbytes: int, advice: str) -> None:
    """Raises an error if a result does not fit into the free memory.

    Prints the size of a result of at least 1 GiB. `advice` says what to do
    instead, in one or more sentences.
    """
    free = free_bytes()
    if free is not None and nbytes > free:
        raise ValueError(
            f"{what} must fit into memory: {_gib(nbytes)} GiB are needed and "
            f"{_gib(free)} GiB are free. {advice} "
            f"Received: {nbytes} bytes needed, {free} bytes free"
        )
    if nbytes >= 2**30:
        print(f"{what} will take {_gib(nbytes)} GiB of memory")


def free_bytes() -> int | None:
    """Returns the free main memory, or `None` if the system hides it."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    names = getattr(os, "sysconf_names", {})
    if "SC_AVPHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.3g}"
