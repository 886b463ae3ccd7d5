"""Blocks of rows, which bound the memory of a computation on large arrays."""

from collections.abc import Iterator

# A block of this many float64 numbers takes 8 MiB and stays in the cache.
BLOCK_ENTRIES = 2**20


def row_blocks(num_rows: int, row_size: int) -> Iterator[slice]:
    """Yields slices that cover all rows of an array, in their order.

    Args:
        num_rows: Number of rows.
        row_size: Number of entries in a row.
    """
    step = max(1, BLOCK_ENTRIES // max(1, row_size))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))
