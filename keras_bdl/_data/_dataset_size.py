"""The number N of training examples: storage, counting and checks."""

import math
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._arguments import check_number
from keras_bdl._backend import in_several_workers
from keras_bdl._data._count_examples import ExampleCount
from keras_bdl._data._count_examples import count_by_reading
from keras_bdl._data._count_examples import count_examples
from keras_bdl._data._observations import EXAMPLES
from keras_bdl._data._observations import POSITIONS
from keras_bdl._data._observations import is_masked
from keras_bdl._data._observations import positions_of_example
from keras_bdl._keras import inner_optimizer
from keras_bdl.likelihoods._loss_as_likelihood import guard_likelihood
from keras_bdl.likelihoods._loss_as_likelihood import ignored_class


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

    def _tell_owner(self):
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


def count_of_fit(
    model: Any,
    sizes: Sequence[DatasetSize],
    fit_arguments: dict[str, Any],
    first: Any = None,
) -> ExampleCount | None:
    """Returns the number of training examples, or `None` if it is unknown.

    Args:
        model: The model that is about to be trained.
        sizes: The `DatasetSize` of every owner.
        fit_arguments: All arguments of `fit`, by name.
        first: The first batch of a Python generator. Defaults to `None`.
    """
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
    model: Any,
    sizes: Sequence[DatasetSize],
    count: ExampleCount | None,
    x: Any,
) -> None:
    """Sets N for each owner for which the user gave no `dataset_size`.

    The function also compares given values with an exact count.

    Args:
        model: The model in training, or about to be trained.
        sizes: The `DatasetSize` of every owner.
        count: The result of `count_of_fit`, or a later, exact count.
        x: The data of `fit`, for error messages.
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
    """Returns all different `DatasetSize` objects of a model.

    Args:
        model: The model.
        methods: Objective and optimizer of the model.
    """
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

    Args:
        model: A `keras.Model` after the last step of an epoch.
        steps: Number of steps in the epoch.
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


def _are_of_one_worker(x, strategy):
    """Returns whether each worker has a different part of the data."""
    if not in_several_workers(strategy) or not isinstance(x, tf.data.Dataset):
        return False
    policy = x.options().experimental_distribute.auto_shard_policy
    return policy is tf.data.experimental.AutoShardPolicy.OFF


def _refuse_open_positions(sizes, model):
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


def _compare(size, counted, fewest):
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

    Args:
        model: A compiled `keras_bdl.Model`.
        methods: Objective and optimizer of the model.
        y_pred: The outputs of the model for a batch.
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
    """Checks the compiled loss if a method or layer of the model needs N.

    Args:
        model: A compiled Keras model.
        methods: Objective and optimizer of the model, if present.
    """
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

    Args:
        size: The `DatasetSize` of the optimizer or of the regularizer.
    """
    model, y_pred = _keras.model_of_step()
    if model is not None:
        observations = getattr(model, "given_observations", None)
        guard_likelihood(
            f"`{size.owner}`", model, [size], observations, y_pred=y_pred
        )
