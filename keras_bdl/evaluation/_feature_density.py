"""Distance of inputs from the training data, in the features of a network."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Data
from keras_bdl._arguments import check_number
from keras_bdl._data._batches import Batches
from keras_bdl._data._checked_inputs import class_labels
from keras_bdl._data._checked_inputs import numbers
from keras_bdl.prediction._stateless_call import check_model

_NORMALIZATIONS = (
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.Normalization,
    keras.layers.RMSNormalization,
)


class FeatureDensity:
    """Scores inputs by their distance from the classes, in feature space.

    Use the score, beside the entropy of a prediction, to find unknown inputs.
    The features h of an input are what the last layer with weights reads.
    `fit` describes the features of each class k by a Gaussian with the mean
    `m_k`, and all classes by one covariance C of the features around the mean
    of their class. The score is the squared Mahalanobis distance to the
    nearest class, high for unknown inputs:

        score = min_k (h - m_k)^T C^-1 (h - m_k)                          (1)

    `fit` and `score` need one forward pass each, and the weights are those of
    the model, without posterior samples. After further training, call `fit`
    again. Axes of the features between the first and the last, such as those
    of an image, are averaged.

    Args:
        model: A `keras.Sequential` or functional model whose shapes are known.
        layer: A layer of the model, or its name, whose output is h. Defaults
            to `None`, the input of the last layer with weights that is no
            normalisation, also inside of a model that is a layer.
        jitter: Added to the eigenvalues of C, as a share of their mean. A
            feature that is constant in training would have no inverse.
            Defaults to `1e-6`.

    Example:

    ```python
    density = keras_bdl.evaluation.FeatureDensity(model).fit(x, y)
    known, unknown = density.score(x_test), density.score(9.0 * x_test)
    keras_bdl.evaluation.ood_detection(known, unknown)["auroc"]
    ```

    Reference:
        - [Lee et al., 2018](https://arxiv.org/abs/1807.03888), eq. 2, with the
          last features alone and without changed inputs
    """

    def __init__(
        self,
        model: keras.Model,
        layer: str | keras.layers.Layer | None = None,
        *,
        jitter: float = 1e-6,
    ):
        check_model(model)
        check_number("jitter", jitter, at_least=0.0)
        self.jitter = jitter
        self._features = keras.Model(model.inputs, _features_of(model, layer))
        self._centre: Any = None
        self._whitening: Any = None
        self._means: Any = None

    def fit(
        self, x: Data, y: ArrayLike | None = None, *, batch_size: int = 256
    ) -> "FeatureDensity":
        """Fits (1) to training data. Memory does not grow with the data.

        Args:
            x: Inputs, as for `keras_bdl.predict`.
            y: Labels, integers or one-hot. For a regression, zeros: one class.
                Defaults to `None`, the labels in the batches of `x`.
            batch_size: Number of inputs in a batch of arrays. Defaults to
                `256`.

        Returns:
            This object.
        """
        y = None if y is None else _labels(y)
        sums = _ClassSums()
        for batch, h in self._batches(x, batch_size):
            rows = slice(batch.start, batch.start + batch.size)
            labels = _labels(batch.y) if y is None else y[rows]
            if len(labels) != len(h):
                raise ValueError(
                    "`y` must hold one label for each input. "
                    f"Received: {len(labels)} labels for {len(h)} inputs"
                )
            sums.add(h, labels)
        if y is not None and len(y) != sums.count.sum():
            raise ValueError(
                "`y` must hold one label for each input. Received: "
                f"{len(y)} labels for {int(sums.count.sum())} inputs"
            )
        self._centre = sums.centre
        values, vectors = np.linalg.eigh(sums.covariance())
        floor = self.jitter * max(values.mean(), 0.0)
        if values.min() + floor <= 1e-12 * values.max():
            raise ValueError(
                "`x` must have features that vary within the classes in every "
                "direction. Pass more inputs, another `layer` or a larger "
                f"`jitter`. Received: {int(sums.count.sum())} inputs, a "
                f"smallest variance of {values.min():.3g}, "
                f"jitter={self.jitter}"
            )
        self._whitening = vectors / np.sqrt(np.maximum(values, 0.0) + floor)
        self._means = sums.means() @ self._whitening
        return self

    def score(self, x: Data, *, batch_size: int = 256) -> np.ndarray:
        """Returns (1) for each input.

        Args:
            x: Inputs, as for `keras_bdl.predict`.
            batch_size: Number of inputs in a batch of arrays. Defaults to
                `256`.
        """
        if self._means is None:
            raise ValueError(
                "`FeatureDensity` must be fitted before `score`. Call "
                "`fit(x_train, y_train)` first. Received: no fitted density"
            )
        found = []
        for _, h in self._batches(x, batch_size):
            z = (h - self._centre) @ self._whitening
            squares = (
                np.sum(z**2, 1)[:, None]
                - 2 * z @ self._means.T
                + np.sum(self._means**2, 1)
            )
            found.append(np.maximum(squares, 0.0).min(1))  # (1)
        return np.concatenate(found)

    def _batches(self, x: Data, batch_size: int) -> Iterator[tuple]:
        """Yields each batch with its float64 features."""
        batches = Batches(x, pad=True)
        if batches.in_memory:
            batches = Batches(x, batch_size=batch_size, pad=True)
        for batch in batches:
            _check_shapes(self._features, batch.inputs)
            h = self._features.predict_on_batch(batch.inputs)[: batch.size]
            h = numbers("features of `x`", h)
            yield batch, h.reshape(len(h), -1, h.shape[-1]).mean(1)


class _ClassSums:
    """Sums over the features of each class, relative to a centre."""

    def __init__(self) -> None:
        self.centre: Any = None
        self.count: Any = None
        self._first: Any = None
        self._second: Any = None

    def add(self, h: np.ndarray, labels: np.ndarray) -> None:
        if self.centre is None:
            # Numbers near zero lose fewer digits.
            self.centre = h.mean(0)
            self.count = np.zeros(0)
            self._first = np.zeros((0, h.shape[1]))
            self._second = np.zeros((h.shape[1], h.shape[1]))
        more = max(labels.max() + 1 - len(self.count), 0)
        self.count = np.pad(self.count, (0, more))
        self._first = np.pad(self._first, ((0, more), (0, 0)))
        h = h - self.centre
        self.count += np.bincount(labels, minlength=len(self.count))
        np.add.at(self._first, labels, h)
        self._second += h.T @ h

    def means(self) -> np.ndarray:
        """Returns the mean of each class that occurs."""
        seen = self.count > 0
        return self._first[seen] / self.count[seen, None]

    def covariance(self) -> np.ndarray:
        weighted = self.means() * self.count[self.count > 0, None]
        return (self._second - weighted.T @ self.means()) / self.count.sum()


def _features_of(
    model: keras.Model, layer: str | keras.layers.Layer | None
) -> Any:
    """Returns the symbolic features."""
    if not getattr(model, "inputs", None):
        raise ValueError(
            "`model` must be a functional model, or a `Sequential` model that "
            "is built, because the features are inside it. "
            f"Received: model={model.name!r} of type {type(model).__name__}"
        )
    if isinstance(layer, keras.layers.Layer):
        layer = layer.name
    if layer is not None:
        names = [inner.name for inner in model.layers]
        if layer not in names:
            raise ValueError(
                f"`layer` must be a layer of the model: {', '.join(names)}. "
                f"Received: layer={layer!r}"
            )
        return model.get_layer(layer).output
    heads = [
        inner
        for inner in model.layers
        if inner.weights and not isinstance(inner, _NORMALIZATIONS)
    ]
    if not heads:
        raise ValueError(
            "`model` must have a layer with weights. "
            f"Received: model={model.name!r}"
        )
    if isinstance(heads[-1], keras.Model):
        inner = heads[-1]
        return keras.Model(inner.inputs, _features_of(inner, None))(inner.input)
    return heads[-1].input


def _check_shapes(model: keras.Model, inputs: Any) -> None:
    """Raises an error unless arrays have the shapes that a model reads."""
    if isinstance(inputs, dict):
        return  # Keras names the entry that does not fit
    arrays = keras.tree.flatten(inputs)
    # A wrong number of arrays has a clear error of Keras.
    for array, tensor in zip(arrays, model.inputs, strict=False):
        given, shape = array.shape[1:], tuple(tensor.shape[1:])
        # Keras adds or removes a last axis of length 1.
        if not any(_fits(g, shape) for g in (given, (*given, 1))) and not (
            given[-1:] == (1,) and _fits(given[:-1], shape)
        ):
            raise ValueError(
                "`x` must have the shape that the model reads, "
                f"{(None, *shape)}. Received: x of shape {(None, *given)}"
            )


def _fits(given: tuple, shape: tuple) -> bool:
    return len(given) == len(shape) and all(
        length in (None, own) for own, length in zip(given, shape, strict=True)
    )


def _labels(y: ArrayLike | None) -> np.ndarray:
    if y is None:
        raise ValueError(
            "`y` must be given if the data have no labels. Received: y=None"
        )
    return class_labels(y, (len(np.atleast_1d(y)), None))
