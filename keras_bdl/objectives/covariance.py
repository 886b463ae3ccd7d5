"""The variances of independent Gaussians over the weights."""

import math
import warnings
import weakref

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.arguments import check_number

KINDS = ("fixed", "scalar", "diagonal")

_INITIAL = 0.01


class Covariance:
    """Gives each weight its standard deviation.

        log sigma = log sigma_0 + c v                                     (1)

    with v zero in the beginning. The optimizer is told the gradient by
    `log sigma`, and moves v: by the step it thinks right for `log sigma`,
    which so moves c times as far. That is c times the learning rate, for
    optimizers that look at the size of a gradient and those that do not.

    Args:
        kind: `"fixed"`, without v; `"scalar"`, one v for each tensor of
            weights; `"diagonal"`, one for each weight.
        stddev: sigma_0, or `None`: given by `learning_rate_equivalent`, or
            0.01 where it is learned.
        learning_rate_equivalent: eta, for `sigma_0^2 = eta / (2 S)`.
        gradient_batch_size: S.
        learning_rate_multiplier: c.
    """

    def __init__(
        self,
        kind,
        stddev,
        learning_rate_equivalent,
        gradient_batch_size,
        learning_rate_multiplier,
    ):
        if kind not in KINDS:
            raise ValueError(
                f"`covariance` must be one of {KINDS}. "
                f"Received: covariance={kind!r}"
            )
        check_number(
            "learning_rate_multiplier", learning_rate_multiplier, above=0.0
        )
        self._learned = kind != "fixed"
        self._initial_stddev = _initial_stddev(
            self._learned, stddev, learning_rate_equivalent, gradient_batch_size
        )
        self._by_weight = kind == "diagonal"
        self._multiplier = learning_rate_multiplier
        self._shapes = None
        self._weights = []
        self.variables = []

    @property
    def built(self):
        """Whether there is no variable to make."""
        return bool(self.variables) or not self._learned

    def build(self, weights):
        """Creates v.

        Args:
            weights: Keras variables.
        """
        if self.built:
            return
        self._weights = [weakref.ref(v) for v in weights]
        self._shapes = [tuple(v.shape) for v in weights]
        self.variables = [
            keras.Variable(
                "zeros",
                shape=(sum(self._sizes()),),
                dtype="float32",
                # Half precision would lose the small steps.
                autocast=False,
                name="log_stddev",
            )
        ]

    def check(self, weights):
        """Raises an error if the weights are not those of `build`.

        Args:
            weights: Keras variables.
        """
        if not self._learned:
            return
        before = [reference() for reference in self._weights]
        if [id(v) for v in weights] != [id(v) for v in before]:
            shapes = [tuple(v.shape) for v in weights]
            raise ValueError(
                "An objective with learned variances belongs to the weights "
                "that it was built for: compile with a new one. Received: "
                "other weights than before, of the shapes "
                f"{shapes}, before {self._shapes}"
            )

    def check_learned(self, owner: str):
        """Warns where no training has moved v.

        Args:
            owner: Name of the class that asks, for messages.
        """
        with tf.init_scope():
            if any(ops.convert_to_numpy(v).any() for v in self.variables):
                return
        if self._learned:
            warnings.warn(
                f"`{owner}` has learned no variances yet and draws with the "
                "initial ones. Train the model, or load a trained one with "
                "`keras.models.load_model`. `load_weights` loads the variances "
                "only into a model that is built and compiled; to compile "
                "again with a new objective forgets them. "
                f"Received: stddev={self._initial_stddev}",
                stacklevel=3,
            )

    def stddevs(self, own, count):
        """Returns sigma, for each tensor its like or a number.

        Args:
            own: Tensors for `variables`.
            count: How many tensors of weights there are.
        """
        initial = ops.convert_to_tensor(self._initial_stddev, "float32")
        if not self._learned:
            return [initial] * count
        (v,) = own
        rest = (self._multiplier - 1.0) * tf.stop_gradient(v)
        stddev = initial * ops.exp(v + rest)  # (1)
        parts = tf.split(stddev, self._sizes())
        shapes = self._shapes if self._by_weight else [()] * count
        return [tf.reshape(p, s) for p, s in zip(parts, shapes, strict=True)]

    def _sizes(self):
        return [
            math.prod(shape) if self._by_weight else 1 for shape in self._shapes
        ]


def _initial_stddev(learned, stddev, rate, size):
    given = {"stddev": stddev, "learning_rate_equivalent": rate}
    if stddev is not None and rate is not None:
        raise ValueError(
            "One of `stddev` and `learning_rate_equivalent` must be left out: "
            f"each says what the variance is. Received: {given}"
        )
    if stddev is not None:
        check_number("stddev", stddev, above=0.0)
        return float(stddev)
    if rate is not None:
        check_number("learning_rate_equivalent", rate, above=0.0)
        if size is None:
            raise ValueError(
                "`learning_rate_equivalent` needs `gradient_batch_size`, the "
                "batch size of the stochastic gradient descent that it is the "
                "learning rate of. Received: gradient_batch_size=None"
            )
        return math.sqrt(rate / (2 * size))
    if learned:
        return _INITIAL
    raise ValueError(
        'With `covariance="fixed"`, one of `stddev` and '
        f"`learning_rate_equivalent` must be given. Received: {given}"
    )
