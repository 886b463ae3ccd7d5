"""The methods of a Keras model that write files, with a check of the path."""

import functools
import os
from typing import Any

import keras

from keras_bdl._saving._storage_path import StoragePath


class CheckedPaths:
    """Base of models that write to no path that cannot be served.

    Keras takes `"gs:/bucket"`, which `pathlib` makes of `"gs://bucket"`, for a
    local folder.
    """

    @functools.wraps(keras.Model.save)
    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Saves the model to one file."""
        super().save(checked(filepath), *args, **kwargs)  # type: ignore[misc]

    @functools.wraps(keras.Model.save_weights)
    def save_weights(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Saves the weights."""
        super().save_weights(  # type: ignore[misc]
            checked(filepath), *args, **kwargs
        )


def checked(path: Any) -> Any:
    """Returns a path, or raises an error if it cannot be served.

    Files of Python pass.
    """
    if isinstance(path, (str, os.PathLike)):
        return os.fspath(StoragePath(path))
    return path
