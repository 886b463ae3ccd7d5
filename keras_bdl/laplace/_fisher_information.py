"""The Fisher information of a model over a data set."""

import copy
import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bdl._aliases import Data
from keras_bdl._aliases import Loss
from keras_bdl._backend import jvp
from keras_bdl._data._batches import example_batches
from keras_bdl._data._dataset_size import is_masked
from keras_bdl._random._keyed_noise import sequence
from keras_bdl.curvature._fisher import fisher_sums
from keras_bdl.curvature._losses import Losses
from keras_bdl.curvature._weight_scope import current_values
from keras_bdl.laplace._scores import ScoresAt
from keras_bdl.laplace._scores_of_outputs import ScoresOfOutputs
from keras_bdl.laplace._scores_of_outputs import drawn
from keras_bdl.laplace._scores_of_outputs import expected
from keras_bdl.posteriors._laplace_gaussian import Laplace
from keras_bdl.prediction._linear_pooling import linear_pooling
from keras_bdl.prediction._stateless_call import traced

# TensorFlow's message for a label outside the classes.
_LABEL = re.compile(r"label value of (-?\d+).*valid range of (\[.*?\))")


@dataclasses.dataclass(frozen=True)
class FisherOptions:
    """Options of `FisherInformation`.

    Attributes:
        loss: Loss of the labels in the data, or `None` for the compiled loss.
        scores: The `ScoresOfOutputs` of the labels that the model draws.
        label_samples: Number of labels drawn for each example, or `None` for
            the expectation over labels.
        variables: Variables whose information is computed.
        factored: Whether matrices have Kronecker factors.
        fallback: What to do with layers that have no rule, see `step`.
    """

    loss: Loss | None
    scores: ScoresOfOutputs
    label_samples: int | None
    variables: list
    factored: bool
    fallback: bool | str


class FisherInformation:
    """The Fisher information of a model, summed over a data set.

    `FisherInformation.of` computes the sums.

    Args:
        model: A built Keras model.
        options: The `FisherOptions`.

    Attributes:
        model: The model.
        variables: Variables whose information is computed.
        examples: Number of examples.
        positions: Number of positions of an example, such as tokens, or `None`
            if it is not fixed or the model has several outputs.
        weight: Sum of the sample weights.
        log_likelihood: Log-likelihood of the labels in the data, or `None`.
        squares: Arrays with the sums of the diagonals; `None` for a variable
            in a matrix.
        matrices: For each matrix the kernel, the bias or `None`, and the
            summed factors of the inputs and of the outputs.
    """

    def __init__(self, model: keras.Model, options: FisherOptions):
        self.model = model
        self._options = options
        self.variables = options.variables
        self._losses = Losses(model, options.loss)
        self._function = traced(model, self._call)
        self._layout: list[tuple] = []
        self.examples = 0
        self.positions: int | None = None
        self.weight = 0.0
        self.log_likelihood: float | None = None
        self.squares: list[np.ndarray | None] = []
        self.matrices: list[tuple] = []

    @classmethod
    def of(
        cls,
        model: keras.Model,
        data: Data,
        *,
        options: Callable[[keras.Model], FisherOptions],
        batch_size: int | None,
        seed: int,
        verbose: int,
        posterior: Laplace | None = None,
        before: "FisherInformation | None" = None,
    ) -> "FisherInformation":
        """Returns the sums over one pass of the data.

        Args:
            model: A Keras model. An unbuilt model is built on the first
                batch.
            data: Any data that `example_batches` reads.
            options: Function from the built model to `FisherOptions`.
            batch_size: Batch size for arrays.
            seed: Seed of drawn labels.
            verbose: Argument of `keras.utils.Progbar`.
            posterior: The information of each batch is that of the linearised
                network at a sample of this posterior. Defaults to `None`: it
                is that of the network itself.
            before: The result of an earlier pass with the same arguments. The
                new pass uses its trace again and drops its sums. Defaults to
                `None`.
        """
        batches, number = example_batches(data, batch_size)
        bar = keras.utils.Progbar(number, verbose=verbose)
        information: Any = None
        totals: Any = None
        for index, batch in enumerate(batches):
            if information is None:
                _build(model, batch)
                information = (
                    before._emptied() if before else cls(model, options(model))
                )
            key = sequence(seed, index).generate_state(2, np.uint32)
            direction = information._step_to_sample(posterior, int(key[0]))
            sums = information._add(batch, key.view(np.int32), direction)
            # The sums stay on the device, because they may be large.
            totals = sums if totals is None else _added(totals, sums)
            bar.update(index + 1, finalize=False)
        bar.update(index + 1, finalize=True)
        information._finish(totals)
        return information

    def _emptied(self):
        """Drops the sums. Returns a copy with the same traced function."""
        self.squares, self.matrices = [], []
        other = copy.copy(self)
        other.examples, other.weight, other.log_likelihood = 0, 0.0, None
        return other

    def _step_to_sample(self, posterior, seed):
        """Returns a sample minus the mean, for each of `variables`."""
        if posterior is None:
            return None
        trained = self.model.trainable_variables
        difference = {
            id(variable): tf.constant(value - mean, variable.dtype)
            for variable, value, mean in zip(
                trained, posterior.sample(seed), posterior.mean(), strict=True
            )
        }
        return [difference[id(v)] for v in self.variables]

    def _add(self, batch, key, direction):
        """Returns the sums over one batch."""
        named = batch.inputs
        rows = len(keras.tree.flatten(named["x"])[0])
        # The padding examples at the end of a batch have weight 0.
        weight = np.zeros(rows, "float32")
        weight[: batch.size] = named.get("weight", weight + 1.0)[: batch.size]
        if weight.min() < 0:
            raise ValueError(
                "`data` must not have negative sample weights. "
                f"Received: a sample weight {weight.min():g}"
            )
        self.examples += batch.size
        self.weight += float(weight.sum(dtype="float64"))
        y = named.get("y")
        try:
            return self._function(named["x"], y, weight, key, direction)
        except tf.errors.InvalidArgumentError as error:
            label = _LABEL.search(str(error))
            if label is None:
                raise
            raise ValueError(
                f"`data` must have labels in {label[2]}, the classes of the "
                f"model. Received: a label {label[1]}"
            ) from None

    def _call(self, x, y, weight, key, direction):
        options = self._options
        x, y = keras.tree.map_structure(
            lambda t: None if t is None else tf.convert_to_tensor(t), (x, y)
        )
        key = tf.convert_to_tensor(key)
        logits = None if direction is None else self._logits(x, direction)
        found = fisher_sums(
            self.model,
            x,
            omega=tf.convert_to_tensor(weight),
            scores=functools.partial(self._scores, key, logits),
            variables=self.variables,
            factored=options.factored,
            fallback=options.fallback,
        )
        # A trace returns only tensors. This list holds the variables.
        self._layout = [(f.kernel, f.bias) for f in found.factors]
        log_likelihood = None
        if y is not None:
            loss = self._losses.of_observations(y, found.outputs, weight)
            examples = tf.cast(tf.shape(weight)[0], loss.dtype)
            log_likelihood = -loss * examples
        return (
            log_likelihood,
            found.squares,
            [(f.inputs, f.outputs) for f in found.factors],
        )

    def _logits(self, x, direction):
        """Returns the logits of the linearised network at a sample."""
        variables = self.variables
        values = current_values(variables)

        def center():
            scope = keras.StatelessScope(zip(variables, values, strict=True))
            xla = bool(self.model.jit_compile)
            with scope, linear_pooling(self.model, xla=xla):
                outputs = self.model(x, training=False)
            scores = self._options.scores.of(self.model, outputs)
            return [
                one.logits(
                    output
                    if output.dtype == tf.float64
                    else tf.cast(output, tf.float32)
                )
                for one, output in zip(
                    scores, keras.tree.flatten(outputs), strict=True
                )
            ]

        logits, products = jvp(center, values, direction)
        return [sum(pair) for pair in zip(logits, products, strict=True)]

    def _scores(self, key, logits, outputs):
        if is_masked(outputs):
            raise ValueError(
                "`fit_laplace` needs outputs without a mask, because masked "
                "positions would count as data. Use sequences of one length, "
                "and layers without `mask_zero`. "
                f"Received: model={self.model.name!r} with masked outputs"
            )
        scores: list = self._options.scores.of(self.model, outputs)
        outputs = keras.tree.flatten(outputs)
        sizes = [size for output in outputs for size in output.shape[1:-1]]
        one = len(outputs) == 1 and None not in sizes
        self.positions = math.prod(sizes) if one else None
        if logits is not None:
            # Learned noise may be negative in the linearised network.
            scores = [
                ScoresAt(*pair) if pair[0].depends_on_outputs else pair[0]
                for pair in zip(scores, logits, strict=True)
            ]
        if self._options.label_samples is None:
            return expected(scores, outputs)
        return drawn(scores, outputs, self._options.label_samples, key)

    def _finish(self, totals):
        log_likelihood, squares, matrices = keras.tree.map_structure(
            lambda t: None if t is None else np.asarray(t), totals
        )
        if log_likelihood is not None:
            self.log_likelihood = float(log_likelihood)
        self.squares = squares
        self.matrices = [
            (*variables, *sums)
            for variables, sums in zip(self._layout, matrices, strict=True)
        ]
        if not all(
            np.all(np.isfinite(array))
            for array in keras.tree.flatten((squares, matrices))
            if array is not None
        ):
            raise ValueError(
                "The Fisher information is NaN or infinite. Check that the "
                "training did not diverge, and that `from_logits` of the loss "
                "is right. "
                f"Received: model={self.model.name!r}, "
                f"loss={self._options.loss or self.model.loss}"
            )


def _build(model, batch):
    if not model.built:
        model(keras.tree.map_structure(lambda x: x[:1], batch.inputs["x"]))


def _added(totals, sums):
    return keras.tree.map_structure(
        lambda a, b: None if a is None else a + b, totals, sums
    )
