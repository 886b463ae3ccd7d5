"""Lets an optimizer forget."""


def restart_optimizer(optimizer):
    """Gives the state of an optimizer the values of a new one.

    Moments, and the number of steps that their bias correction and schedules
    of learning rates depend on; not a learning rate that is a number. In
    place, so that no training step is traced again.

    Args:
        optimizer: An optimizer, out of its loss scaling.
    """
    if not optimizer.built:
        return
    new = type(optimizer).from_config(optimizer.get_config())
    new.build(optimizer._trainable_variables)
    for variable, initial in zip(
        optimizer.variables, new.variables, strict=True
    ):
        variable.assign(initial)
