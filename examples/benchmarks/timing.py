"""Ratios of times on a machine that also does other work.

Two functions run in turns, so that other work slows both. The ratio of each
pair of neighbouring times is one measurement. Their median does not move if
some pairs are disturbed, and its interval says how much is known.
"""

import concurrent.futures
import multiprocessing
import re
import time
from pathlib import Path

import numpy as np

WARM_UP = 2
# Fewer pairs have no interval that says anything: they only try the code.
FEWEST = 10
RESAMPLES = 2000


class Ratio(float):
    """The median of paired ratios of times.

    Attributes:
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end of the interval.
        rounds: Number of pairs.
    """

    def __new__(cls, ratios):
        self = super().__new__(cls, np.median(ratios))
        self.rounds = len(ratios)
        rng = np.random.default_rng(0)
        drawn = rng.choice(ratios, (RESAMPLES, len(ratios)))
        medians = np.median(drawn, axis=1)
        self.low, self.high = np.percentile(medians, [2.5, 97.5])
        return self

    def __str__(self):
        return f"{self:.2f} ({self.low:.2f} to {self.high:.2f})"

    def is_wide(self, margin):
        """Returns whether half the interval is more than a share of it."""
        return self.high - self.low > 2 * margin * self


def text(value):
    """Returns a number, or a `Ratio` with its interval, as text."""
    return str(value) if isinstance(value, Ratio) else f"{value:.3f}"


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def ratio(ours, theirs, rounds, *, margin=0.05, most=4):
    """Returns the time of a function over that of another, measured in turns.

    Args:
        ours: Function without arguments.
        theirs: Function without arguments.
        rounds: Number of pairs. If there are at least 10 and the interval is
            wider than `margin` allows, as many more are measured.
        margin: Largest half width of the interval, as a share of the ratio.
        most: At most this many times `rounds` pairs are measured.
    """
    if rounds < FEWEST:
        most = 1
    for _ in range(1 if rounds < FEWEST else WARM_UP):
        ours(), theirs()
    ratios = []
    while True:
        for _ in range(rounds):
            if len(ratios) % 2:
                mine, other = timed(ours), timed(theirs)
            else:
                other, mine = timed(theirs), timed(ours)
            ratios.append(mine / other)
        found = Ratio(ratios)
        if len(ratios) >= most * rounds or not found.is_wide(margin):
            return found


def show_control(plain, rounds, **options):
    """Prints the ratio of a function to itself: 1 but for the noise."""
    print(f"control, plain / plain: {ratio(plain, plain, rounds, **options)}")


def in_new_process(function, *arguments):
    """Returns the result of a function in a process of its own.

    Args:
        function: A function of the script.
        *arguments: Its arguments.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as process:
        return process.submit(function, *arguments).result()


def peak_memory():
    """Returns the peak memory of this process, in MiB. Works on Linux."""
    # `getrusage` begins with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024
