"""Ratios of times on a machine that also does other work."""

import time


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def ratio(ours, theirs, rounds):
    """Returns the ratio of the best times, measured in turns."""
    ours(), theirs()  # trace
    times = {ours: [], theirs: []}
    for i in range(rounds):
        for function in (ours, theirs) if i % 2 else (theirs, ours):
            times[function].append(timed(function))
    return min(times[ours]) / min(times[theirs])
