"""The class that reads data sets of TensorFlow Datasets."""

import socket
from typing import Any
from urllib.parse import urlsplit

import tensorflow as tf

from keras_bdl._saving._storage_path import StoragePath


class TFDSReader:
    """Reads the files of one data set, and downloads them at the first use."""

    def __init__(self, name: str, data_dir: str | None = None) -> None:
        if data_dir is not None:
            data_dir = str(StoragePath(data_dir))
        tfds = _tensorflow_datasets(name)
        self.name = name
        self._tfds = tfds
        self._builder = tfds.builder(name, data_dir=data_dir)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Name of each stored label."""
        return tuple(self._builder.info.features["label"].names)

    def examples(self, split: str, part: tuple[int, int] = (0, 1)) -> Any:
        """Returns a dataset of `(position, encoded image, label)` in order.

        Args:
            split: Name of the split.
            part: Number of a part, and number of all parts. Only the files
                with examples of the part are read. Defaults to all examples.
        """
        index, count = part
        start = 0
        if count > 1:
            total = self._builder.info.splits[split].num_examples
            size, more = divmod(total, count)  # the first parts have one more
            start = index * size + min(index, more)
            split = self._tfds.even_splits(split, count)[index]
        try:
            stored = self._read(split)
        except AssertionError:  # an absent folder raises this error
            self._download()
            stored = self._read(split)
        return stored.enumerate(start).map(
            lambda position, example: (
                position,
                example["image"],
                tf.cast(example["label"], tf.int32),
            )
        )

    def decode(self, image: Any) -> Any:
        """Decodes one image to a uint8 tensor."""
        return self._builder.info.features["image"].decode_example(image)

    def _read(self, split: Any) -> Any:
        tfds = self._tfds
        # Images stay encoded, so that shuffling and caching need less memory.
        decoders = tfds.decode.PartialDecoding(
            {"image": True, "label": True},
            decoders={"image": tfds.decode.SkipDecoding()},
        )
        return self._builder.as_dataset(
            split=split, shuffle_files=False, decoders=decoders
        )

    def _download(self) -> None:
        import requests

        by_hand = self._builder.MANUAL_DOWNLOAD_INSTRUCTIONS
        if by_hand and not _holds_something(self._manual_folder):
            raise FileNotFoundError(self._what_to_put_where())
        # Without a network, TensorFlow Datasets would try for minutes.
        if not by_hand and not _is_online():
            raise ConnectionError(self._no_network())
        try:
            self._builder.download_and_prepare()
        except (requests.ConnectionError, requests.Timeout) as e:
            raise ConnectionError(self._no_network()) from e
        # TensorFlow Datasets raises these errors if the folder has files of
        # other sets.
        except (
            AssertionError,
            FileNotFoundError,
            tf.errors.NotFoundError,
        ) as e:
            if not by_hand:
                raise
            raise FileNotFoundError(self._what_to_put_where()) from e
        except ImportError as e:
            if e.name != "importlib_resources":
                raise
            raise ImportError(
                f"To download data set `{self.name}`, TensorFlow Datasets "
                "needs `importlib_resources`, which is not installed. Run "
                '`pip install "keras-bdl[examples]"`, or load the embedded set '
                '"digits".'
            ) from e

    @property
    def _manual_folder(self) -> Any:
        return self._builder.data_dir_root / "downloads" / "manual"

    def _what_to_put_where(self) -> str:
        instructions = " ".join(
            self._builder.MANUAL_DOWNLOAD_INSTRUCTIONS.split()
        )
        return (
            f"Data set `{self.name}` is not on this machine and must be "
            "downloaded by hand. Put its files in the manual_dir, "
            f"`{self._manual_folder}`, as TensorFlow Datasets says: "
            f'"{instructions}". Or load the embedded set "digits".'
        )

    def _no_network(self) -> str:
        return (
            f"Data set `{self.name}` is not on this machine, and there is no "
            'network for a download. Load the embedded set "digits", or pass '
            "as `data_dir` a folder in which TensorFlow Datasets has prepared "
            "the data set."
        )


def corrupted_name(argument: str, name: str, config: str) -> str:
    """Returns the name of a corrupted set in TensorFlow Datasets."""
    tfds = _tensorflow_datasets(name)
    configs = tfds.builder_cls(name).builder_configs
    if config not in configs:
        kinds = sorted({known.rpartition("_")[0] for known in configs})
        raise ValueError(
            f"`{argument}` must name a corruption and its severity from 1 to "
            f'5, such as "{name}/{kinds[0]}_3". The corruptions are '
            f"{', '.join(kinds)}. "
            f"Received: {argument}={name + '/' * bool(config) + config!r}"
        )
    return f"{name}/{config}"


def _tensorflow_datasets(name: str) -> Any:
    try:
        import tensorflow_datasets
    except ImportError as e:
        raise ImportError(
            f"Data set `{name}` needs TensorFlow Datasets, which is not "
            'installed. Run `pip install "keras-bdl[examples]"`, or load '
            'the embedded set "digits".'
        ) from e
    return tensorflow_datasets


def _holds_something(folder: Any) -> Any:
    return folder.exists() and any(folder.iterdir())


def _is_online() -> bool:
    """Returns whether the proxy or a name server can be reached."""
    from requests import utils

    # Most data sets come from this host.
    url = "https://storage.googleapis.com"
    proxy = utils.select_proxy(url, utils.get_environ_proxies(url))
    try:
        if proxy:
            parts = urlsplit(utils.prepend_scheme_if_needed(proxy, "http"))
            port = parts.port or {"https": 443}.get(parts.scheme, 80)
            socket.create_connection((parts.hostname, port), timeout=10).close()
        else:
            socket.getaddrinfo(urlsplit(url).hostname, 443)
    except OSError:
        return False
    return True
