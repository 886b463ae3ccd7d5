"""Loss and errors of a model over its training data."""

import keras
import numpy as np
import tensorflow as tf

from keras_bdl.diagnostics.training_loss import TrainingLoss
from keras_bdl.prediction.likelihood import Likelihood


class LossValue(TrainingLoss):
    """Adds up loss, penalties and wrong answers batch by batch."""

    def over(self, data):
        """Returns the means over the data: loss, penalty, error rate.

        The error rate is NaN unless there is one output, of a classifier.

        Args:
            data: `TrainingData`.
        """
        totals = tf.zeros(4, "float64")
        for batch in data:
            totals = self(batch, totals)
        loss, penalty, wrong, answers = totals.numpy()
        error = wrong / answers if answers else np.nan
        return loss / data.examples, penalty / data.examples, error

    def _step(self, batch, totals):
        found = self.forward(batch)
        wrong, answers = self._errors(found)
        terms = [
            found.loss * found.examples,
            found.penalty * found.examples,
            wrong,
            answers,
        ]
        return totals + tf.stack([tf.cast(t, "float64") for t in terms])

    def _errors(self, found):
        """Returns the numbers of wrong and of all answers."""
        none = tf.constant(0), tf.constant(0)
        losses = keras.tree.flatten(self._given or self.model.loss)
        if len(losses) != 1 or len(keras.tree.flatten(found.outputs)) != 1:
            return none
        (outputs,), (y,) = map(keras.tree.flatten, (found.outputs, found.y))
        told = Likelihood.of_loss(losses[0])
        if told is None or told.task == "regression":
            return none
        if told.task == "binary":
            answers = outputs > (0.0 if told.from_logits else 0.5)
            labels = tf.reshape(tf.cast(y, "float32"), tf.shape(outputs)) > 0.5
        else:
            answers = tf.argmax(outputs, -1)
            if y.shape.rank == outputs.shape.rank and y.shape[-1] != 1:
                y = tf.argmax(y, -1)
            labels = tf.reshape(tf.cast(y, "int64"), tf.shape(answers))
        wrong = tf.reduce_sum(tf.cast(answers != labels, "int32"))
        return wrong, tf.size(answers)
