"""Check that compiled metrics read the outputs of a model correctly.

The compiled loss defines whether the outputs are logits, probabilities, or
means and standard deviations. A Keras metric that reads the outputs in another
way returns a wrong number that may look right.
"""

import dataclasses

import keras

from keras_bdl import _keras
from keras_bdl import likelihoods
from keras_bdl.likelihoods._implied_noise import loss_function
from keras_bdl.metrics._classification import ClassificationMetric
from keras_bdl.prediction._outputs import Likelihood
from keras_bdl.prediction._outputs import per_output

_CROSS_ENTROPIES = {
    "binary_crossentropy": "binary",
    "categorical_crossentropy": "classification",
    "sparse_categorical_crossentropy": "classification",
}
# These metrics compare the classes of an example. Logits and probabilities
# order the classes alike.
_OF_SEVERAL_CLASSES = (
    "categorical_accuracy",
    "categorical_hinge",
    "sparse_categorical_accuracy",
    "sparse_top_k_categorical_accuracy",
    "top_k_categorical_accuracy",
)
_NEEDED = {
    ("classification", True): "`keras.metrics.SparseCategoricalAccuracy()`, a "
    "cross-entropy of classes with `from_logits=True`,",
    ("classification", False): "`keras.metrics.SparseCategoricalAccuracy()`, "
    "a cross-entropy of classes",
    ("binary", True): "`keras.metrics.BinaryAccuracy(threshold=0.0)`, `AUC` "
    "or `BinaryCrossentropy` with `from_logits=True`,",
    ("binary", False): "`keras.metrics.BinaryAccuracy()`, `AUC()`, "
    "`BinaryCrossentropy()`",
}


def check_metrics(model, y, y_pred):
    """Raises an error for a metric that reads an output in a wrong way.

    The function also sets whether metrics of `keras_bdl` take logits.

    Args:
        model: A compiled `keras_bdl.Model`.
        y: The targets of a batch.
        y_pred: The outputs.
    """
    compiled = _keras.compile_metrics(model)
    if compiled is None:
        return
    if not compiled.built:
        compiled.build(y, y_pred)
    outputs = _keras.flat_outputs(compiled, y_pred)
    losses = _keras.flat_outputs(compiled, _losses(model, y_pred))
    for metrics in filter(None, _keras.metrics_of_outputs(compiled)):
        for of_output, loss, output in zip(
            metrics, losses, outputs, strict=True
        ):
            for metric in of_output.metrics if of_output else ():
                _check(metric, loss, output)


def _losses(model, y_pred):
    """Returns the loss of each output, in the structure of the outputs."""
    losses = keras.tree.flatten(model.loss)
    if len(keras.tree.flatten(y_pred)) > 1:
        names = getattr(model, "output_names", None)
        losses = per_output("loss", model.loss, y_pred, names=names)
    elif len(losses) != 1:  # one output with a sum of losses
        losses = [None]
    return keras.tree.pack_sequence_as(y_pred, losses)


def _check(metric, loss, output):
    if isinstance(loss, likelihoods.Gaussian) and loss.noise_stddev is None:
        _check_reads_noise(metric)
        return
    likelihood = _likelihood(loss, output)
    if isinstance(metric, ClassificationMetric):
        metric.learn(likelihood)
    elif likelihood is not None and likelihood.task != "regression":
        _check_reads_classes(metric, likelihood)


def _check_reads_noise(metric):
    reader = _keras.metric_function(metric)
    if not getattr(reader, "reads_noise", False):
        raise ValueError(
            "The network predicts standard deviations after the means, and "
            "this metric compares the targets with both. Use "
            "`keras_bdl.metrics.RootMeanSquaredError`, `MeanAbsoluteError`, "
            "`GaussianLogLikelihood` or another metric of Gaussian outputs. "
            "If a metric of your own splits the output, give it the attribute "
            f"`reads_noise = True`. Received: metric={metric.name!r}"
        )


def _check_reads_classes(metric, likelihood):
    name, options = _of_keras(metric)
    if name is None or _reads_classes(name, options, likelihood):
        return
    needed = _NEEDED[likelihood.task, likelihood.from_logits]
    kind = "logits" if likelihood.from_logits else "probabilities"
    raise ValueError(
        f"The compiled loss says that the outputs are {kind} of "
        f"task={likelihood.task!r}, and this metric misreads them. Use "
        f"{needed} or a metric of `keras_bdl.metrics`. "
        f"Received: metric={metric.name!r}, of type {type(metric).__name__}"
    )


def _reads_classes(name, options, likelihood):
    """Returns whether a Keras metric reads a classifier correctly."""
    classes = likelihood.task == "classification"
    logits = likelihood.from_logits
    if name in _CROSS_ENTROPIES:
        of_task = _CROSS_ENTROPIES[name] == likelihood.task
        return of_task and options.get("from_logits", False) == logits
    if name == "AUC":  # applies a sigmoid to logits
        of_task = not (classes and logits)
        return of_task and options["from_logits"] == logits
    if name in _OF_SEVERAL_CLASSES or _compares_classes(name, options):
        return classes
    if name in ("accuracy", "IoU", "MeanIoU"):  # take labels as outputs
        return False
    if name in ("hinge", "squared_hinge"):  # take the score of one class
        return logits and not classes
    if name in ("binary_accuracy", "BinaryIoU") and logits:
        return not classes and options.get("threshold", 0.5) != 0.5
    if name == "kl_divergence":
        return classes and not logits
    return not logits


def _compares_classes(name, options):
    if name in ("F1Score", "FBetaScore"):
        return options["threshold"] is None
    if name in ("Precision", "Recall"):
        return options["top_k"] is not None
    return options.get("sparse_y_pred") is False  # intersection over union


def _of_keras(metric):
    """Returns the name and the arguments of a metric of Keras."""
    if isinstance(metric, keras.metrics.MeanMetricWrapper):
        function = _keras.metric_function(metric)
        name = getattr(function, "__name__", None)
        options = _keras.metric_options(metric)
    else:
        function = type(metric)
        name, options = function.__name__, None
    module = getattr(function, "__module__", None) or ""
    if module.split(".")[0] != "keras":
        return None, {}
    return name, metric.get_config() if options is None else options


def _likelihood(loss, output):
    """Returns the `Likelihood` of an output, `None` for an unknown loss."""
    if loss_function(loss)[1].get("axis", -1) != -1:
        return None
    likelihood = Likelihood.of_loss(loss)
    one_entry = len(output.shape) < 2 or output.shape[-1] == 1
    if likelihood and likelihood.task == "classification" and one_entry:
        likelihood = dataclasses.replace(likelihood, task="binary")
    return likelihood
