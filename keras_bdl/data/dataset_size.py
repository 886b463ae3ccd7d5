"""The number N of training examples: where it is kept, counted and compared."""

import math
import warnings

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl.arguments import check_number
from keras_bdl.data.count_examples import count_examples
from keras_bdl.distribute.keras_fixes import in_several_workers
from keras_bdl.likelihoods.loss_check import check_likelihood
from keras_bdl.loss_scaling import inner_optimizer


class DatasetSize:
    """N: given by the user, or counted by `keras_bdl.Model.fit`.

    Whatever has a loss or a noise that depends on N owns one of these as its
    attribute `dataset_size`: an optimizer, an objective, a layer, a
    regularizer. `keras_bdl.Model.fit` finds them all and counts the data for
    those that were not given a number.

    The count lives in a variable, so that no trace bakes it in, and apart
    from the number given, which alone belongs into a config.

    Args:
        given: The user's `dataset_size`, or `None`: to be counted.
        owner: Name of the class that asks, for messages.
        maker: Name of a function that makes the owner, too, and takes
            `dataset_size`. Defaults to `None`.
    """

    def __init__(self, given: int | None, owner: str, maker: str | None = None):
        if given is not None:
            check_number("dataset_size", given, at_least=1)
        self.given = given
        self.owner = owner
        self._maker = maker
        self.counted = None
        self._variable = None

    def __repr__(self):
        return repr(self.given)

    def count(self, examples: int):
        """Tells the number of examples that the next training will see."""
        self.counted = int(examples)
        if self._variable is None:
            # Hidden in this plain object, the variable is no weight of the
            # layer that owns it.
            self._variable = keras.Variable(
                float(examples),
                dtype="float32",
                trainable=False,
                # Half precision ends at 65504.
                autocast=False,
                name="dataset_size",
            )
        self._variable.assign(float(examples))

    @property
    def advice(self) -> str:
        """The call that gives N, for error messages."""
        advice = f"Write `{self.owner}(..., dataset_size=<examples>)`"
        if self._maker is None:
            return advice
        return f"{advice} or `{self._maker}(..., dataset_size=<examples>)`"

    @property
    def known(self) -> bool:
        """Whether N was given or counted."""
        return self.given is not None or self.counted is not None

    def value(self):
        """Returns N as a float32 tensor; raises where nobody knows it."""
        if self.given is not None:
            return ops.convert_to_tensor(float(self.given), "float32")
        if not self.known:
            raise ValueError(
                f"`{self.owner}` needs the number of training examples, and "
                f"they were not counted. {self.advice}, or train with "
                "`keras_bdl.Model.fit`, which counts arrays and `tf.data`."
            )
        return self._variable.value


def tell_dataset_size(model, sizes, fit_arguments):
    """Tells N to those that were not given it, and compares it with others.

    Args:
        model: The model that is about to be trained.
        sizes: The `DatasetSize` of everything that asks for N.
        fit_arguments: All arguments of `fit`, by name.
    """
    count = None
    if not _are_of_one_worker(fit_arguments["x"], model.distribute_strategy):
        count = count_examples(
            fit_arguments["x"],
            fit_arguments["validation_split"],
            fit_arguments["steps_per_epoch"],
            fit_arguments["validation_data"] is not None,
        )
    if count is not None and count.examples < 1:
        raise ValueError(
            "`x` must hold at least one training example. "
            f"Received: x={type(fit_arguments['x']).__name__} without one"
        )
    news = [size for size in sizes if not size.known]
    for size in sizes:
        if size.given is not None:
            _compare(size, count)
        elif count is None:
            raise ValueError(
                f"`{size.owner}` needs the number of training examples, and "
                f"this data does not tell it. {size.advice}. "
                f"Received: x={type(fit_arguments['x']).__name__}"
            )
        else:
            with model.distribute_strategy.scope():
                size.count(count.examples)
    if news and model.test_function is not None:
        # An evaluation that was traced without N left the KL out.
        model.make_test_function(force=True)
    counted = any(size.given is None for size in sizes)
    if counted and count.endless:
        model.warn_of_endless_data(count.examples)


def dataset_sizes(model, methods):
    """Returns every `DatasetSize` of a model, each once.

    Args:
        model: The model.
        methods: Its objective and its optimizer.
    """
    owners = [*methods, *_keras.all_layers(model)]
    owners += [v.regularizer for v in model.trainable_variables]
    found = [getattr(owner, "dataset_size", None) for owner in owners]
    # Others may have an attribute of that name, too.
    sizes = {id(size): size for size in found if isinstance(size, DatasetSize)}
    return list(sizes.values())


def compare_with_epoch(model, steps):
    """Warns where N is not the number of examples of the epoch that ends.

    For models whose `fit` counts nothing; Keras weights the mean of the loss
    with the examples. Batches that are left out are no difference.

    Args:
        model: A `keras.Model` after the last step of an epoch.
        steps: How many steps it had.
    """
    if in_several_workers(model.distribute_strategy):
        return  # each has seen its part
    sizes = dataset_sizes(model, [inner_optimizer(model)])
    owners = sorted({(s.owner, s.given) for s in sizes if s.given})
    if not owners:
        return
    losses = [m for m in model.metrics if m.name == "loss"]
    counts = [m.count for m in losses if isinstance(m, keras.metrics.Mean)]
    seen = sum(int(count.numpy()) for count in counts)
    if not seen:  # by a training step of the user's own
        return
    batch_size = math.ceil(seen / steps)
    for owner, given in owners:
        if abs(given - seen) < batch_size:
            continue
        warnings.warn(
            f"`{owner}` was given dataset_size={given}, and an epoch of this "
            f"`fit` has {seen} examples; the number given is used. Where an "
            "epoch is one pass over the training data, give the number of "
            f"its examples. Received: dataset_size={given}, seen {seen}",
            stacklevel=4,
        )


def _are_of_one_worker(x, strategy):
    """Whether each worker has brought data of its own, which make up N."""
    if not in_several_workers(strategy) or not isinstance(x, tf.data.Dataset):
        return False
    policy = x.options().experimental_distribute.auto_shard_policy
    return policy is tf.data.experimental.AutoShardPolicy.OFF


def _compare(size, count):
    if count is None or count.endless:
        return
    if abs(size.given - count.examples) <= count.tolerance:
        return
    warnings.warn(
        f"`{size.owner}` was given another number of training examples than "
        "`fit` counts; the number given is used. "
        f"Received: dataset_size={size.given}, counted {count.examples}",
        stacklevel=4,
    )


def check_loss(model, methods):
    """Checks the compiled loss if anything of a model asks for N.

    Args:
        model: A compiled Keras model.
        methods: Its objective and its optimizer, those that it has.
    """
    sizes = dataset_sizes(model, methods)
    owners = dict.fromkeys(f"`{size.owner}`" for size in sizes)
    if owners:
        check_likelihood(" and ".join(owners), model)
