"""Which optimizers can minimise an objective."""

from keras_bdl.loss_scaling import inner_optimizer
from keras_bdl.optimizers.sampler import Sampler
from keras_bdl.optimizers.variational_optimizer import VariationalOptimizer


def check_optimizer(owner, model):
    """Raises an error if the optimizer would minimise something else.

    Args:
        owner: Name of the objective.
        model: A compiled model.
    """
    optimizer = inner_optimizer(model)
    name = type(optimizer).__name__
    if isinstance(optimizer, (Sampler, VariationalOptimizer)):
        raise ValueError(
            f"`{owner}` is minimised by an optimizer that only optimizes, such "
            f'as "adam", and `{name}` finds a posterior itself: leave one of '
            f"both out. Received: optimizer={name}"
        )
    changing = [
        option
        for option in ("weight_decay", "use_ema")
        if getattr(optimizer, option, None)
    ]
    if changing:
        raise ValueError(
            f"`{owner}` has a `prior`, and its variances fit the weights as "
            f"they are: leave {changing} out of the optimizer. "
            f"Received: optimizer={name} with {changing}"
        )
