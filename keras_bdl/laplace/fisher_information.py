"""The Fisher information of a model over a data set."""

import dataclasses
import functools

import keras
import numpy as np
import tensorflow as tf

from keras_bdl.curvature.fisher import fisher_sums
from keras_bdl.curvature.losses import Losses
from keras_bdl.data.examples import example_batches
from keras_bdl.laplace.scores import Scores
from keras_bdl.prediction.traced import traced
from keras_bdl.random.counter_numbers import sequence


@dataclasses.dataclass(frozen=True)
class FisherOptions:
    """What `FisherInformation` computes.

    Attributes:
        loss: The loss of the labels in the data, as `compile` takes it, or
            `None`: that of the model.
        scores: The `Scores` of the labels from the model.
        label_draws: How many labels are drawn for each example; `None` for
            the expectation.
        variables: Whose information it is.
        factored: Whether matrices have Kronecker factors.
        fallback: Whether layers without a rule are differentiated example by
            example.
    """

    loss: object
    scores: Scores
    label_draws: int | None
    variables: list
    factored: bool
    fallback: bool


class FisherInformation:
    """Sums over all examples of a data set. Made by `of`.

    Attributes:
        examples: How many there were.
        weight: The sum of their weights.
        log_likelihood: Of the labels in the data, or `None`.
        squares: Arrays, the sums of the diagonals; `None` for a variable that
            is in a matrix.
        matrices: For each matrix the kernel, the bias or `None`, and the sums
            (2) and (3) of `keras_bdl.curvature.fisher_sums`.
    """

    def __init__(self, model, options: FisherOptions):
        self._model = model
        self._options = options
        self._losses = Losses(model, options.loss)
        self._function = traced(model, self._call)
        self._layout = None
        self.examples = 0
        self.weight = 0.0
        self.log_likelihood = None
        self.squares = []
        self.matrices = []

    @classmethod
    def of(cls, model, data, options, batch_size, seed, verbose):
        """Goes through the data once.

        Args:
            model: A Keras model; built on the first batch if it is not.
            data: As of `example_batches`.
            options: A function of the built model to `FisherOptions`.
            batch_size: For arrays.
            seed: Of drawn labels.
            verbose: As of `keras.utils.Progbar`.
        """
        batches, number = example_batches(data, batch_size)
        bar = keras.utils.Progbar(number, verbose=verbose)
        information, totals = None, None
        for index, batch in enumerate(batches):
            if information is None:
                _build(model, batch)
                information = cls(model, options(model))
            key = sequence(seed, index).generate_state(2, np.uint32)
            sums = information._add(batch, key.view(np.int32))
            # On the device: they may be large.
            totals = sums if totals is None else _added(totals, sums)
            bar.update(index + 1, finalize=False)
        bar.update(index + 1, finalize=True)
        information._finish(totals)
        return information

    def _add(self, batch, key):
        """Returns the sums over one batch."""
        named = batch.inputs
        rows = len(keras.tree.flatten(named["x"])[0])
        # Zero for those that fill up the batch.
        weight = np.zeros(rows, "float32")
        weight[: batch.size] = named.get("weight", weight + 1.0)[: batch.size]
        if weight.min() < 0:
            raise ValueError(
                "`data` must not have negative weights. "
                f"Received: a sample weight {weight.min():g}"
            )
        self.examples += batch.size
        self.weight += float(weight.sum(dtype="float64"))
        return self._function(named["x"], named.get("y"), weight, key)

    def _call(self, x, y, weight, key):
        options = self._options
        x, y = keras.tree.map_structure(
            lambda t: None if t is None else tf.convert_to_tensor(t), (x, y)
        )
        found = fisher_sums(
            self._model,
            x,
            omega=tf.convert_to_tensor(weight),
            scores=functools.partial(self._scores, tf.convert_to_tensor(key)),
            variables=options.variables,
            factored=options.factored,
            fallback=options.fallback,
        )
        # Kept out of the trace, for there are variables in it.
        self._layout = [(f.kernel, f.bias) for f in found.factors]
        log_likelihood = None
        if y is not None:
            # Keras wants an axis for each of the loss.
            axes = [1] * (len(found.outputs.shape) - 2)
            weights = tf.reshape(weight, [-1, *axes])
            loss = self._losses.of_data(y, found.outputs, weights)
            log_likelihood = -loss * tf.cast(tf.shape(weight)[0], loss.dtype)
        return (
            log_likelihood,
            found.squares,
            [(f.inputs, f.outputs) for f in found.factors],
        )

    def _scores(self, key, outputs):
        if not tf.is_tensor(outputs):
            raise ValueError(
                "`fit_laplace` takes models with one output. Received: "
                f"model={self._model.name!r}, which returns "
                f"{type(outputs).__name__}"
            )
        scores = self._options.scores.of_outputs(outputs)
        if self._options.label_draws is None:
            return scores.expected(outputs)
        return scores.drawn(outputs, self._options.label_draws, key)

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
                "training did not diverge, and that the loss says rightly "
                "whether the outputs are logits. "
                f"Received: model={self._model.name!r}, "
                f"loss={self._options.loss or self._model.loss}"
            )


def _build(model, batch):
    if not model.built:
        model(keras.tree.map_structure(lambda x: x[:1], batch.inputs["x"]))


def _added(totals, sums):
    return keras.tree.map_structure(
        lambda a, b: None if a is None else a + b, totals, sums
    )
