"""What a variational layer uses in all its calls of one forward pass."""

import dataclasses

from keras_bdl.layers import draw
from keras_bdl.random import replica_numbers


@dataclasses.dataclass
class ForwardPass:
    """One draw of a layer, and what it added to the losses.

    Attributes:
        means: The means of the weights, by name.
        drawn: What the estimator asked for, by name: the weights, their
            perturbations, or their variances.
        seed: Seed of the signs of flipout and of the noise of outputs.
        kl_per_example: KL(q || p) / N.
        loss: The same, annealed; in `losses` as long as the pass lasts.
        calls: How many calls have drawn noise of outputs.
    """

    means: dict
    drawn: dict
    seed: object
    kl_per_example: object
    loss: object
    calls: int = 0

    def sign_seeds(self):
        """Returns seeds for inputs and outputs, the same for all calls."""
        return [
            replica_numbers.fold_in(self.seed, stream)
            for stream in (draw.INPUT_SIGNS, draw.OUTPUT_SIGNS)
        ]

    def output_seed(self):
        """Returns a seed for the noise of outputs, another for each call."""
        self.calls += 1
        return replica_numbers.fold_in(self.seed, draw.OUTPUTS + self.calls)
