"""The number N of training examples: storage, counting and checks."""

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Data
from keras_bdl._arguments import check_number
from keras_bdl._backend import in_several_workers
from keras_bdl._data._pipeline_pass import Pass
from keras_bdl._data._pipeline_pass import pass_over
from keras_bdl._data._pipeline_pass import repeats
from keras_bdl._keras import inner_optimizer
from keras_bdl.likelihoods._loss_as_likelihood import guard_likelihood
from keras_bdl.likelihoods._loss_as_likelihood import ignored_class

EXAMPLES = "examples"


POSITIONS = "positions"


OBSERVATIONS = (EXAMPLES, POSITIONS)


def _unknown(_: Any) -> Any:
    return None


class DatasetSize:
    """The number N of training examples, given by the user or counted.

    An optimizer, objective, layer or regularizer whose loss or noise depends
    on N has an attribute `dataset_size` of this class. `keras_bdl.Model.fit`
    finds all these attributes. If the user gave no number, `fit` counts the
    data.

    A variable holds the count, so that a trace does not fix its value. The
    config of the owner holds only the number that the user gave.

    Args:
        given: The user's `dataset_size`, or `None` to count.
        owner: Name of the class that needs N, for error messages.
        maker: Name of a function with an argument `dataset_size` that also
            makes the owner, for error messages. Defaults to `None`.
        on_count: Function to call after a count. Defaults to `None`.

    Attributes:
        labels: Number of labels that the loss averages in each example. Every
            label is an observation, so `value` multiplies N by this number.
            `None` before the model has shown its outputs.
        was_read: Whether `value` was called since `compile`.
    """

    def __init__(
        self,
        given: int | None,
        owner: str,
        *,
        maker: str | None = None,
        on_count: Callable[[], None] | None = None,
    ):
        if given is not None:
            check_number("dataset_size", given, at_least=1)
        self.given = given
        self.owner = owner
        self._maker = maker
        self._on_count = on_count
        self.counted: int | None = None
        self.labels: int | None = None
        self.was_read = False
        self._used_labels: int | None = None  # at the last call of `on_count`
        self._variable: Any = None

    def __repr__(self) -> str:
        return repr(self.given)

    def count(self, examples: int) -> None:
        """Sets the number of examples of the next training.

        Args:
            examples: The number.
        """
        self.counted = int(examples)
        if self._variable is None:
            # Keras does not track variables of this plain object, so the
            # variable does not become a weight of the layer.
            self._variable = keras.Variable(
                float(examples),
                dtype="float32",
                trainable=False,
                # float16 ends at 65504.
                autocast=False,
                name="dataset_size",
            )
        self._variable.assign(float(examples))
        self._tell_owner()

    def settle(self) -> None:
        """Calls `on_count` again if `labels` has changed since its last call.

        Call this method outside of a trace.
        """
        if self.labels != self._used_labels and self.known:
            self._tell_owner()

    def _tell_owner(self) -> None:
        self._used_labels = self.labels
        if self._on_count is not None:
            self._on_count()

    @property
    def advice(self) -> str:
        """Advice for error messages: the call that sets N."""
        advice = f"Write `{self.owner}(..., dataset_size=<examples>)`"
        if self._maker is None:
            return advice
        return f"{advice} or `{self._maker}(..., dataset_size=<examples>)`"

    @property
    def known(self) -> bool:
        """Whether N was given or counted."""
        return self.given is not None or self.counted is not None

    def value(self) -> Any:
        """Returns N times `labels`, or raises an error if N is unknown."""
        self.was_read = True
        if self.given is not None:
            size = float(self.given * (self.labels or 1))
            return ops.convert_to_tensor(size, "float32")
        if not self.known:
            raise ValueError(
                f"`{self.owner}` needs the number of training examples. "
                f"{self.advice}, or train with `keras_bdl.Model.fit`, which "
                "counts arrays and `tf.data`. Received: dataset_size=None"
            )
        if self.labels in (None, 1):
            return self._variable.value
        return self.labels * self._variable.value


@dataclasses.dataclass(frozen=True)
class ExampleCount:
    """The number of training examples, exact or estimated.

    Attributes:
        examples: Number of different examples.
        exact: Whether the number is exact. If not, `fit` counts the examples
            of its first pass over the data.
        batches: Number of steps of a pass, or `None` if only the end of the
            data can tell.
        expected: Function that returns how many examples the estimate expects
            in the first steps, or `None` if it expects no number.
        endless: Whether the data have no end, so that `steps_per_epoch`
            defines the epoch.
        repeated: Whether the data repeat examples in a way that hides the
            number of different ones.
    """

    examples: int
    exact: bool = True
    batches: int | None = None
    expected: Callable[[int], Any] = _unknown
    endless: bool = False
    repeated: bool = False

    def is_settled_by(self, steps: int) -> bool:
        """Returns whether an epoch of so many steps is a whole pass."""
        return self.batches is None or steps >= self.batches

    def corrected(self, seen: int, steps: int) -> int:
        """Returns the number of examples, after a pass."""
        expected = self.expected(steps)
        if expected is None:
            return seen
        return round(self.examples * seen / expected)


def count_of_fit(
    model: Any,
    sizes: Sequence[DatasetSize],
    fit_arguments: dict[str, Any],
    first: Any = None,
) -> ExampleCount | None:
    """Returns the number of training examples, or `None` if it is unknown."""
    if _are_of_one_worker(fit_arguments["x"], model.distribute_strategy):
        return None
    count = count_examples(
        fit_arguments["x"],
        first=first,
        validation_split=fit_arguments["validation_split"],
        steps_per_epoch=fit_arguments["steps_per_epoch"],
        has_validation_data=fit_arguments["validation_data"] is not None,
    )
    needed = any(size.given is None for size in sizes)
    if count is None and needed and fit_arguments["steps_per_epoch"] is None:
        count = count_by_reading(
            fit_arguments["x"], verbose=fit_arguments["verbose"]
        )
    if count is not None and count.examples < 1:
        raise ValueError(
            "`x` must hold at least one training example. "
            f"Received: x={type(fit_arguments['x']).__name__} without examples"
        )
    return count


def tell_dataset_size(
    model: Any, sizes: Sequence[DatasetSize], count: ExampleCount | None, x: Any
) -> None:
    """Sets N for each owner for which the user gave no `dataset_size`.

    The function also compares given values with an exact count.
    """
    factor = 1
    fewest: int | None = None
    if count is not None and model.observations == POSITIONS:
        # A mask may leave out all but one position of an example. A smaller N
        # needs no warning down to this number.
        fewest, positions = count.examples, positions_of_example(model)
        if positions is None:
            _refuse_open_positions(sizes, model)
            count = None
        factor = positions or 1
    unknown = [size for size in sizes if not size.known]
    for size in sizes:
        if size.given is not None:
            if count is not None and count.exact:
                _compare(size, factor * count.examples, fewest)
        elif count is None:
            raise ValueError(
                f"`{size.owner}` needs the number of training examples, but "
                f"the size of this data is unknown. {size.advice}. "
                f"Received: x={type(x).__name__}"
            )
        else:
            with model.distribute_strategy.scope():
                size.count(factor * count.examples)
    if unknown and model.test_function is not None:
        # An evaluation traced without N has no KL term.
        model.make_test_function(force=True)


def dataset_sizes(
    model: keras.Model, methods: Sequence[Any]
) -> list[DatasetSize]:
    """Returns all different `DatasetSize` objects of a model."""
    owners = [*methods, *_keras.all_layers(model)]
    owners += [v.regularizer for v in model.trainable_variables]
    found = [getattr(owner, "dataset_size", None) for owner in owners]
    # A layer of a user may have an unrelated attribute `dataset_size`.
    sizes = {id(size): size for size in found if isinstance(size, DatasetSize)}
    return list(sizes.values())


def compare_with_epoch(model: keras.Model, steps: int) -> None:
    """Warns if N is not the number of examples in the epoch that ends.

    This check is for models whose `fit` does not count the examples. The number
    of examples in the epoch comes from the metric `loss` of Keras, which counts
    examples. A difference of less than one batch causes no warning.
    """
    if in_several_workers(model.distribute_strategy):
        return  # each worker has seen only a part of the data
    sizes = dataset_sizes(model, [inner_optimizer(model)])
    owners = sorted({(s.owner, s.given) for s in sizes if s.given})
    if not owners:
        return
    losses = [m for m in model.metrics if m.name == "loss"]
    counts = [m.count for m in losses if isinstance(m, keras.metrics.Mean)]
    seen = sum(int(count.numpy()) for count in counts)
    if not seen:  # the user's own training step does not track the loss
        return
    batch_size = math.ceil(seen / steps)
    for owner, given in owners:
        if abs(given - seen) < batch_size:
            continue
        warnings.warn(
            f"`{owner}` uses dataset_size={given}, but an epoch of this `fit` "
            f"has {seen} examples. If an epoch is one pass over the training "
            f"data, write dataset_size={seen}. "
            f"Received: dataset_size={given}, seen {seen}",
            stacklevel=4,
        )


def _are_of_one_worker(x: Any, strategy: Any) -> Any:
    """Returns whether each worker has a different part of the data."""
    if not in_several_workers(strategy) or not isinstance(x, tf.data.Dataset):
        return False
    policy = x.options().experimental_distribute.auto_shard_policy
    return policy is tf.data.experimental.AutoShardPolicy.OFF


def _refuse_open_positions(sizes: Any, model: Any) -> None:
    for size in sizes:
        if size.given is None:
            raise ValueError(
                f"`{size.owner}` needs the number of positions of an example, "
                "which the outputs of the model leave open. Give a fixed shape "
                f"to `keras.Input`, or write `{size.owner}(..., "
                "dataset_size=<positions of all examples>)`. "
                f"Received: model={model.name!r}, dataset_size=None, "
                'observations="positions"'
            )


def _compare(size: Any, counted: Any, fewest: Any) -> None:
    if size.given == counted:
        return
    if fewest is not None and fewest < size.given < counted:
        return
    warnings.warn(
        f"`{size.owner}` uses another number of observations than `fit` "
        "counts. Leave out `dataset_size` to use the counted number. "
        f"Received: dataset_size={size.given}, counted {counted}",
        stacklevel=4,
    )


def check_mask(model: Any, methods: Sequence[Any], y_pred: Any) -> None:
    """Raises an error if N counts positions that have no loss.

    A mask or an ignored class leaves out such positions.
    """
    if model.observations == EXAMPLES:
        return
    losses = keras.tree.flatten(model.loss)
    ignored = any(ignored_class(loss) is not None for loss in losses)
    if not ignored and not is_masked(y_pred):
        return
    for size in dataset_sizes(model, methods):
        if size.given is None:
            raise ValueError(
                f"`{size.owner}` needs the number of positions without those "
                "that a mask or `ignore_class` leaves out, which `fit` cannot "
                "count. Write "
                f"`{size.owner}(..., dataset_size=<positions>)`. "
                'Received: dataset_size=None, observations="positions"'
            )


def guard_loss(model: keras.Model, methods: Sequence[Any]) -> None:
    """Checks the compiled loss if a method or layer of the model needs N."""
    sizes = dataset_sizes(model, methods)
    owners = dict.fromkeys(f"`{size.owner}`" for size in sizes)
    if owners:
        guard_likelihood(
            " and ".join(owners),
            model,
            sizes,
            getattr(model, "given_observations", None),
        )


def guard_loss_of_step(size: DatasetSize) -> None:
    """Makes the loss of the running model a likelihood for a plain model.

    A plain `keras.Model` does not tell an optimizer or a regularizer about its
    loss. In a training loop of the user, nothing happens.
    """
    model, y_pred = _keras.model_of_step()
    if model is not None:
        observations = getattr(model, "given_observations", None)
        guard_likelihood(
            f"`{size.owner}`", model, [size], observations, y_pred=y_pred
        )


def count_examples(
    x: Data,
    *,
    validation_split: float | None = 0.0,
    steps_per_epoch: int | None = None,
    has_validation_data: bool = False,
    first: Any = None,
) -> ExampleCount | None:
    """Counts the training examples."""
    if isinstance(x, tf.data.Dataset):
        return _count_dataset(x, steps_per_epoch)
    if isinstance(x, keras.utils.PyDataset):
        return _count_py_dataset(x, steps_per_epoch)
    if first is not None:
        return _of_batches(first, None, steps_per_epoch)
    sizes = {_rows(a) for a in keras.tree.flatten(x) if _is_array(a)}
    if not sizes and hasattr(x, "__len__") and hasattr(x, "__iter__"):
        return _count_loader(x, steps_per_epoch)
    if len(sizes) != 1:
        return None
    examples = sizes.pop()
    if validation_split and not has_validation_data:
        # Keras uses this number of rows for training.
        examples = math.floor(examples * (1.0 - validation_split))
    return ExampleCount(examples)


def peeked(generator: Iterator) -> tuple[Any, Iterator]:
    """Returns the first batch of a generator, and a generator of all."""
    first = next(generator, None)

    def batches() -> Iterator[Any]:
        if first is not None:
            yield first
        yield from generator

    return first, batches()


def different_examples(data: Data, seen: int) -> int:
    """Returns how many of the examples of a pass are different ones.

    Warns if the data repeat examples in a way that hides this number.
    """
    if not isinstance(data, tf.data.Dataset):
        return seen
    found = pass_over(data)
    if found is not None and found.total not in (0, math.inf):
        return round(found.distinct * seen / found.total)
    if repeats(data):
        warnings.warn(
            "`data` repeat examples, and N should be the number of different "
            "examples, which this pipeline hides. Leave out `.repeat()`, or "
            f"give `dataset_size`. Received: data of {seen} examples",
            stacklevel=3,
        )
    return seen


def count_by_reading(data: Data, verbose: Any) -> ExampleCount | None:
    """Reads data whose length only a pass over them can tell."""
    if not isinstance(data, tf.data.Dataset):
        return None
    if data.cardinality() == tf.data.INFINITE_CARDINALITY:
        return None
    warnings.warn(
        "The training data do not tell their length, so `fit` reads them once "
        "before the training to count N. To save this pass, write "
        f"`dataset_size`. Received: x={type(data).__name__}",
        stacklevel=5,
    )
    seen = 0
    for batch in data:
        arrays = [a for a in keras.tree.flatten(batch) if _is_array(a)]
        if not arrays:
            return None
        seen += _rows(arrays[0])
    examples = different_examples(data, seen)
    if verbose:
        print(f"N = {examples} training examples")
    return ExampleCount(examples)


def _is_array(x: Any) -> Any:
    # A sparse matrix has no length, and a DataFrame no `dtype`.
    return len(getattr(x, "shape", None) or ()) > 0


def _rows(array: Any) -> Any:
    return int(tf.shape(array)[0] if array.shape[0] is None else array.shape[0])


def _count_dataset(dataset: Any, steps_per_epoch: Any) -> Any:
    found = pass_over(dataset)
    if found is not None and found.distinct != math.inf:
        if found.certain:
            return ExampleCount(int(found.distinct))
        # Without these, the number of steps says nothing about the pass.
        known = found.prefix(1) is not None or found.batches is not None
        if found.total == math.inf:
            known = found.prefix(1) is not None and steps_per_epoch is not None
        if known or (found.total != math.inf and steps_per_epoch is None):
            return _estimate(found)
    batches = int(dataset.cardinality())
    if batches < 0 and steps_per_epoch is None:
        return None
    for batch in dataset.take(1):
        return _of_batches(
            batch, None if batches < 0 else batches, steps_per_epoch, dataset
        )
    return ExampleCount(0)  # the data set is empty


def _estimate(found: Pass) -> Any:
    finite = found.total != math.inf

    def expected(steps: Any) -> Any:
        number = found.prefix(steps)
        return found.total if number is None and finite else number

    return ExampleCount(
        int(found.distinct),
        exact=False,
        batches=int(found.batches) if finite and found.batches else None,
        expected=expected,
    )


def _of_batches(
    batch: Any, batches: Any, steps_per_epoch: Any, dataset: Any = None
) -> Any:
    """Estimates the number of examples from the first batch."""
    steps = steps_per_epoch if batches is None else batches
    arrays = [a for a in keras.tree.flatten(batch) if _is_array(a)]
    if steps is None or not arrays:
        return None
    return ExampleCount(
        steps * _rows(arrays[0]),
        exact=False,
        batches=steps,
        endless=batches is None,
        repeated=dataset is not None and repeats(dataset),
    )


def _count_py_dataset(dataset: Any, steps_per_epoch: Any) -> Any:
    batches = dataset.num_batches
    count = _of_batches(dataset[0], batches, steps_per_epoch)
    if batches is None or count is None or batches < 2:
        return count
    rest = _of_batches(dataset[batches - 1], 1, None)
    if rest is None:
        return count
    examples = count.examples // batches * (batches - 1) + rest.examples
    return dataclasses.replace(count, examples=examples)


def _count_loader(loader: Any, steps_per_epoch: Any) -> Any:
    """Estimates the size of a loader of batches, such as that of PyTorch."""
    batch = next(iter(loader), None)
    return _of_batches(batch, len(loader), steps_per_epoch)


def positions_of_example(model: keras.Model) -> int | None:
    """Returns the number of values that the loss has for each example.

    These are the positions of the output: the axes between the first and the
    last. The result is `None` if their number is unknown.
    """
    outputs = getattr(model, "outputs", None)
    if not outputs:  # a subclass has none
        return None
    _check_one_output(outputs)
    sizes = outputs[0].shape[1:-1]
    return None if None in sizes else math.prod(sizes)


def count_positions(y_pred: Any, counted: Any = None) -> Any:
    """Returns the number of positions over which Keras averages the loss.

    Masked positions do not count.
    """
    outputs = keras.tree.flatten(y_pred)
    _check_one_output(outputs)
    shape = ops.shape(outputs[0])[:-1]
    masks = [_keras.mask_of(outputs[0]), counted]
    masks = [ops.reshape(m, shape) for m in masks if m is not None]
    if not masks:
        return ops.prod(shape)
    return ops.sum(ops.cast(functools.reduce(ops.logical_and, masks), "int32"))


def is_masked(y_pred: Any) -> bool:
    """Returns whether layers have passed on a mask to an output."""
    outputs = keras.tree.flatten(y_pred)
    return any(_keras.mask_of(output) is not None for output in outputs)


def _check_one_output(outputs: Any) -> None:
    if len(outputs) != 1:
        raise ValueError(
            '`observations="positions"` needs a model with one output. Use '
            f'`observations="examples"`. Received: {len(outputs)} outputs'
        )
