"""The number of examples in one pass over a `tf.data` pipeline."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_bdl import _keras

Number = int | float  # `math.inf` for data without an end


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass over a pipeline.

    Attributes:
        total: Number of examples, each repetition counted.
        distinct: Number of different examples that the passes train on.
        batches: Number of elements of the pipeline, or `None` if only reading
            the data can tell.
        certain: Whether the numbers are proven. Otherwise they are estimates:
            a function of the user may change the number of examples.
        ordered: Whether all passes have the same order.
        prefix: Function that returns the number of examples in the first
            elements, or `None` if this number is unknown.
    """

    total: Number
    distinct: Number
    batches: Number | None
    certain: bool
    ordered: bool
    prefix: Callable[[Number], Number | None]


def pass_over(dataset: tf.data.Dataset) -> Pass | None:
    """Returns the numbers of one pass, or `None` if they are unknown."""
    try:
        return _pass(dataset, leading=True)
    except RecursionError:  # hundreds of steps, such as one for each file
        return None


def repeats(dataset: tf.data.Dataset) -> bool:
    """Returns whether a step of a pipeline repeats its input."""
    found = [dataset]
    while found:
        one = found.pop()
        if _step(one) == "Repeat" and _keras.count_of_step(one) != 1:
            return True
        found += _keras.inputs_of_step(one)
    return False


def _pass(dataset: Any, leading: Any) -> Any:
    """Counts entries of the first axis if `leading`, else elements."""
    rule = _RULES.get(_step(dataset), _without_rule)
    found = rule(dataset, leading)
    batches = _cardinality(dataset)
    if found is None or found.batches == batches:
        return found
    if batches is None and found.batches is not None:
        return found  # TensorFlow gives up sooner, as for `unbatch`
    return dataclasses.replace(found, batches=batches, certain=False)


def _step(dataset: Any) -> Any:
    """Returns the name of the last step, such as `"Repeat"`."""
    name = type(dataset).__name__.lstrip("_")
    return name.removesuffix("V2").removesuffix("Dataset")


def _cardinality(dataset: Any) -> Any:
    number = int(dataset.cardinality())
    if number == tf.data.INFINITE_CARDINALITY:
        return math.inf
    return None if number < 0 else number


def _input(dataset: Any) -> Any:
    return _keras.inputs_of_step(dataset)[0]


def _without_rule(dataset: Any, leading: Any) -> Any:
    """Multiplies the number of elements by their fixed size."""
    size, batches = 1, _cardinality(dataset)
    if leading:
        size = _fixed_size(dataset)
    if size is None or batches is None:
        return None
    total = size * batches
    is_source = not _keras.inputs_of_step(dataset)
    return Pass(
        total=total,
        distinct=total,
        batches=batches,
        certain=not repeats(dataset),
        ordered=is_source,
        prefix=lambda k: size * min(k, batches),
    )


def _fixed_size(dataset: Any) -> Any:
    shape = getattr(keras.tree.flatten(dataset.element_spec)[0], "shape", None)
    if shape is None or shape.rank is None or shape.rank == 0:
        return None
    return shape[0]


def _like_input(dataset: Any, leading: Any) -> Any:
    return _pass(_input(dataset), leading)


def _mapped(dataset: Any, leading: Any) -> Any:
    found = _pass(_input(dataset), leading)
    if found is None:
        return _without_rule(dataset, leading)
    if not leading or (
        _fixed_size(dataset) is not None
        and _fixed_size(dataset) == _fixed_size(_input(dataset))
    ):
        return found
    # The function sees a batch, and may make it larger or smaller.
    return dataclasses.replace(found, certain=False)


def _asserted(dataset: Any, leading: Any) -> Any:
    found = _pass(_input(dataset), leading)
    if found is not None and found.certain:
        return found
    known = _without_rule(dataset, leading)
    if known is None or found is None or known.certain:
        return known
    distinct = min(found.distinct, known.total)
    return dataclasses.replace(known, distinct=distinct)


def _at_most(dataset: Any, leading: Any) -> Any:
    """Returns an upper bound, for a step that removes elements."""
    found = _pass(_input(dataset), leading)
    if found is None:
        return None
    return dataclasses.replace(
        found, batches=None, certain=False, prefix=lambda _: None
    )


def _shuffled(dataset: Any, leading: Any) -> Any:
    found = _pass(_input(dataset), leading)
    if found is None:
        return None
    shuffle: Any = _keras.shuffle_of_dataset(dataset)
    changes, _ = shuffle
    first = found.prefix(1)
    alike = found.batches is not None and first is not None
    alike = alike and first * found.batches == found.total
    return dataclasses.replace(
        found,
        ordered=found.ordered and not changes,
        prefix=found.prefix if alike else lambda _: None,
    )


def _repeated(dataset: Any, leading: Any) -> Any:
    found = _pass(_input(dataset), leading)
    times: Any = _keras.count_of_step(dataset)
    if found is None or times == 1:
        return found
    times = math.inf if times < 0 else times
    if not times or not found.total:
        return _nothing(found)

    def prefix(k: Any) -> Any:
        if found.batches in (None, math.inf):
            return found.prefix(k)
        k = min(k, times * found.batches)
        rest = found.prefix(k % found.batches)
        if rest is None:
            return None
        return k // found.batches * found.total + rest

    return dataclasses.replace(
        found,
        total=times * found.total,
        batches=None if found.batches is None else times * found.batches,
        prefix=prefix,
    )


def _nothing(found: Any) -> Any:
    return dataclasses.replace(
        found, total=0, distinct=0, batches=0, prefix=lambda _: 0
    )


def _first_ones(dataset: Any, leading: Any) -> Any:
    found = _pass(_input(dataset), leading)
    count = _keras.count_of_step(dataset)
    if found is None or count < 0:
        return found
    total, certain = _of_first(found, count)
    return dataclasses.replace(
        found,
        total=total,
        distinct=min(found.distinct, total),
        batches=count if found.batches is None else min(count, found.batches),
        certain=certain,
        prefix=lambda k: found.prefix(min(k, count)),
    )


def _later_ones(dataset: Any, leading: Any) -> Any:
    found = _pass(_input(dataset), leading)
    count = _keras.count_of_step(dataset)
    if found is None:
        return None
    if count < 0 or (found.batches is not None and count >= found.batches):
        return _nothing(found)
    skipped, certain = _of_first(found, count)
    total = found.total - skipped

    def prefix(k: Any) -> Any:
        first, both = found.prefix(count), found.prefix(count + k)
        return None if None in (first, both) else both - first

    once = found.distinct == found.total
    return dataclasses.replace(
        found,
        total=total,
        distinct=total if once else min(found.distinct, total),
        batches=None if found.batches is None else found.batches - count,
        certain=certain,
        prefix=prefix,
    )


def _of_first(found: Any, count: Any) -> Any:
    """Returns the number of examples in the first elements, and if certain."""
    known = found.prefix(count)
    if known is not None:
        return known, found.certain
    if found.batches is None or found.batches == math.inf:
        return found.total, False
    share = min(1.0, count / found.batches)
    return round(share * found.total), False


def _sharded(dataset: Any, leading: Any) -> Any:
    found, all_of = _without_rule(dataset, False), _pass(_input(dataset), False)
    if leading or found is None or all_of is None:
        return _without_rule(dataset, leading)
    once = all_of.certain and all_of.distinct == all_of.total
    return dataclasses.replace(found, certain=once, ordered=all_of.ordered)


def _batched(dataset: Any, leading: Any) -> Any:
    found = _pass(_input(dataset), leading=False)
    if found is None:
        return _without_rule(dataset, leading)
    size = _keras.batch_size_of_step(dataset)
    drops = _keras.drops_remainder(dataset)
    total, distinct, batches = found.total, found.distinct, found.batches
    once = total == distinct
    if batches is not None and batches != math.inf:
        batches = batches // size if drops else math.ceil(batches / size)
        # A new shuffle in each pass leaves out other examples.
        if drops:
            total = batches * size
        if drops and once and found.ordered:
            distinct = total
        distinct = distinct if total else 0
    if not leading and batches is None:
        return None
    if not leading:
        return Pass(
            total=batches,
            distinct=batches if once else math.ceil(distinct / size),
            batches=batches,
            certain=found.certain and once,
            ordered=found.ordered,
            prefix=lambda k: min(k, batches),
        )
    known = batches is not None
    return dataclasses.replace(
        found,
        total=total,
        distinct=distinct,
        batches=batches,
        prefix=lambda k: min(k * size, total) if known else None,
    )


def _grouped(dataset: Any, leading: Any) -> Any:
    """Estimates batches of similar examples: all of them, in any batch."""
    if not leading:
        return None
    found = _pass(_input(dataset), leading=False)
    if found is None:
        return None
    return dataclasses.replace(
        found, batches=None, certain=False, prefix=lambda _: None
    )


def _unbatched(dataset: Any, leading: Any) -> Any:
    if leading:
        return _without_rule(dataset, leading)
    found = _pass(_before_normalizing(dataset), leading=True)
    if found is None:
        return None
    return dataclasses.replace(
        found, batches=found.total, prefix=lambda k: min(k, found.total)
    )


def _rebatched(dataset: Any, leading: Any) -> Any:
    if not leading:
        return _without_rule(dataset, leading)
    found = _pass(_before_normalizing(dataset), leading=True)
    if found is None:
        return None
    return dataclasses.replace(
        found,
        batches=_cardinality(dataset),
        certain=found.certain and not _keras.drops_remainder(dataset),
        prefix=lambda _: None,
    )


def _before_normalizing(dataset: Any) -> Any:
    """Returns the input of a step for which TensorFlow adds a map."""
    before = _input(dataset)
    if _step(before) == "Restructured":
        before = _input(before)
        if _step(before) in ("Map", "ParallelMap"):
            before = _input(before)
    return before


def _zipped(dataset: Any, leading: Any) -> Any:
    parts = [_pass(one, leading) for one in _keras.inputs_of_step(dataset)]
    batches = _cardinality(dataset)
    if batches is None or None in parts:
        return _without_rule(dataset, leading)
    if leading:  # the first part has the inputs
        same = parts[0].batches == batches
        return parts[0] if same else _without_rule(dataset, leading)
    # A counter beside the data makes no new example.
    inputs = _keras.inputs_of_step(dataset)
    of_data = [
        part
        for one, part in zip(inputs, parts, strict=True)
        if _step(one) not in ("Range", "Random", "Variant")
    ]
    distinct = max(min(one.distinct, batches) for one in of_data or parts)
    return Pass(
        total=batches,
        distinct=distinct,
        batches=batches,
        certain=all(one.certain for one in parts),
        ordered=all(one.ordered for one in parts),
        prefix=lambda k: min(k, batches),
    )


def _concatenated(dataset: Any, leading: Any) -> Any:
    parts = [_pass(one, leading) for one in _keras.inputs_of_step(dataset)]
    if None in parts or None in [one.batches for one in parts]:
        return _without_rule(dataset, leading)
    first, second = parts

    def prefix(k: Any) -> Any:
        if k <= first.batches:
            return first.prefix(k)
        rest = second.prefix(k - first.batches)
        return None if rest is None else first.total + rest

    one, other = _keras.inputs_of_step(dataset)
    return Pass(
        total=first.total + second.total,
        distinct=first.distinct + (0 if one is other else second.distinct),
        batches=first.batches + second.batches,
        certain=first.certain and second.certain,
        ordered=first.ordered and second.ordered,
        prefix=prefix,
    )


_RULES = {
    **dict.fromkeys(
        ("Cache", "Options", "Prefetch", "Save", "Snapshot"), _like_input
    ),
    **dict.fromkeys(
        ("DenseToRagged", "Map", "ParallelMap", "Restructured", "Scan"), _mapped
    ),
    **dict.fromkeys(
        ("Filter", "IgnoreErrors", "TakeWhile", "Unique"), _at_most
    ),
    **dict.fromkeys(("Batch", "PaddedBatch", "ParallelBatch"), _batched),
    "AssertCardinality": _asserted,
    "Concatenate": _concatenated,
    "GroupByWindow": _grouped,
    "Rebatch": _rebatched,
    "Repeat": _repeated,
    "Shard": _sharded,
    "Shuffle": _shuffled,
    "Skip": _later_ones,
    "Take": _first_ones,
    "Unbatch": _unbatched,
    "Zip": _zipped,
}
