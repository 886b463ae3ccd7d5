"""Standard deviations of independent Gaussians over the weights."""

import math
import warnings
import weakref

import keras
import tensorflow as tf
from keras import ops

from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_number

_KINDS = ("fixed", "scalar", "diagonal")

# sigma_0 by default. The fixed one was measured with 118 to 4,500 examples.
_LEARNED, _FIXED = 0.01, 0.03


class Covariance:
    """Fixed or learned standard deviations of the weights.

        log sigma = log sigma_0 + c v                                     (1)

    with v zero before the first step. The optimizer gets the gradient with
    respect to `log sigma` and applies its step to v, so `log sigma` moves c
    times as far. The learning rate of `log sigma` is thus c times as large,
    also for optimizers that normalise gradients.

    Args:
        kind: `"fixed"`: no v; `"scalar"`: one v for each tensor of weights;
            `"diagonal"`: one v for each weight.
        stddev: sigma_0. `None` means the value that follows from
            `learning_rate_equivalent`, or else 0.03 if sigma is fixed and 0.01
            if it is learned.
        learning_rate_equivalent: eta of `sigma_0^2 = eta / (2 S)`, or `None`.
        gradient_batch_size: S, or `None`.
        learning_rate_multiplier: c.
    """

    def __init__(
        self,
        kind: str,
        stddev: float | None,
        *,
        learning_rate_equivalent: float | None,
        gradient_batch_size: int | None,
        learning_rate_multiplier: float,
    ):
        check_choice("covariance", kind, _KINDS)
        check_number(
            "learning_rate_multiplier", learning_rate_multiplier, above=0.0
        )
        self._learned = kind != "fixed"
        self._initial_stddev = _initial_stddev(
            self._learned, stddev, learning_rate_equivalent, gradient_batch_size
        )
        self._by_weight = kind == "diagonal"
        self._multiplier = learning_rate_multiplier
        self._shapes: list[tuple] = []
        self._weights: list[weakref.ref] = []
        self.variables: list[keras.Variable] = []

    @property
    def weights(self) -> list[keras.Variable]:
        """The weights that `build` got and that still exist."""
        found = [reference() for reference in self._weights]
        return [v for v in found if v is not None]

    @property
    def built(self):
        """Whether all variables exist."""
        return bool(self.variables) or not self._learned

    def build(self, weights):
        """Creates the variable v of (1), unless sigma is fixed.

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
                "that it was built for. Compile with a new objective. "
                f"Received: other weights, of the shapes {shapes}, before "
                f"{self._shapes}"
            )

    def check_learned(self, owner: str):
        """Warns if no training step has changed the learned v.

        Args:
            owner: Name of the objective in the warning.
        """
        with tf.init_scope():
            if any(ops.convert_to_numpy(v).any() for v in self.variables):
                return
        if self._learned:
            warnings.warn(
                f"`{owner}` has learned no variances yet and draws with the "
                "initial ones. Train the model, or load a trained one with "
                "`keras.models.load_model`. `load_weights` loads the variances "
                "only into a model that is built and compiled. Compiling again "
                "with a new objective discards them. "
                f"Received: stddev={self._initial_stddev}",
                stacklevel=3,
            )

    def stddevs(self, own, count):
        """Returns sigma for each tensor of weights.

        A sigma is a number, or a tensor of the shape of the weights.

        Args:
            own: Tensors for `variables`.
            count: Number of tensors of weights.
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
            "`stddev` and `learning_rate_equivalent` both set the variance. "
            f"Leave one of them out. Received: {given}"
        )
    if stddev is not None:
        check_number("stddev", stddev, above=0.0)
        return float(stddev)
    if rate is not None:
        check_number("learning_rate_equivalent", rate, above=0.0)
        if size is None:
            raise ValueError(
                "`learning_rate_equivalent` needs `gradient_batch_size`, the "
                "batch size of SGD with that learning rate. Give both. "
                "Received: gradient_batch_size=None"
            )
        return math.sqrt(rate / (2 * size))
    return _LEARNED if learned else _FIXED
