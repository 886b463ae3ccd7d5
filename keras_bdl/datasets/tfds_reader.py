"""Reads the stored examples of TensorFlow Datasets."""

import socket
import urllib.request

import tensorflow as tf


class TFDSReader:
    """The files of one data set, downloaded when they are first read.

    Args:
        name: Name in TensorFlow Datasets, with the configuration after a
            slash where it has several.
        data_dir: Where the files are kept. Defaults to `None`, the folder of
            TensorFlow Datasets.
    """

    def __init__(self, name: str, data_dir: str | None = None):
        try:
            import tensorflow_datasets as tfds
        except ImportError as e:
            raise ImportError(
                f"Data set `{name}` is read through TensorFlow Datasets, which "
                'is not installed: run `pip install "keras-bdl[examples]"`, or '
                'load the embedded set "digits".'
            ) from e
        self.name = name
        self._tfds = tfds
        self._builder = tfds.builder(name, data_dir=data_dir)

    @property
    def label_names(self):
        """Name of each stored label."""
        return tuple(self._builder.info.features["label"].names)

    def examples(self, split: str):
        """Returns `(position, encoded image, label)` in the order of files."""
        try:
            stored = self._read(split)
        except AssertionError:  # what an absent folder raises
            self._download()
            stored = self._read(split)
        return stored.enumerate().map(
            lambda position, example: (
                position,
                example["image"],
                tf.cast(example["label"], tf.int32),
            )
        )

    def decode(self, image):
        """Decodes one image to a uint8 tensor."""
        return self._builder.info.features["image"].decode_example(image)

    def _read(self, split):
        tfds = self._tfds
        # Images stay encoded: it is bytes that are shuffled and cached.
        decoders = tfds.decode.PartialDecoding(
            {"image": True, "label": True},
            decoders={"image": tfds.decode.SkipDecoding()},
        )
        return self._builder.as_dataset(
            split=split, shuffle_files=False, decoders=decoders
        )

    def _download(self):
        import requests

        message = (
            f"Data set `{self.name}` is not on this machine, and there is no "
            "network to download it from: load the embedded set "
            '"digits", or pass as `data_dir` a folder in which TensorFlow '
            "Datasets has prepared it."
        )
        # TensorFlow Datasets would try for minutes before it gives up.
        if self._needs_network() and not _is_online():
            raise ConnectionError(message)
        try:
            self._builder.download_and_prepare()
        except (requests.ConnectionError, requests.Timeout) as e:
            raise ConnectionError(message) from e

    def _needs_network(self):
        return not self._builder.MANUAL_DOWNLOAD_INSTRUCTIONS


def _is_online():
    if urllib.request.getproxies():  # names are resolved by the proxy
        return True
    try:
        # Most sets come from there; any name would do.
        socket.getaddrinfo("storage.googleapis.com", 443)
    except OSError:
        return False
    return True
