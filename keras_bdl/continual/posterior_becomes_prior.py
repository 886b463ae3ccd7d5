"""From one task to the next."""

from keras_bdl import _keras
from keras_bdl.layers.weight_priors import WeightPriors
from keras_bdl.loss_scaling import inner_optimizer


def posterior_becomes_prior(
    model, layers=None, transform=None, reset_optimizer: bool = True
):
    """Makes what a model has learned the prior of what it learns next.

    In sequential Bayesian inference the posterior of tasks 1 to t is the
    prior of task t + 1,

        p(w | D_1, ..., D_t+1)  ~  p(D_t+1 | w) p(w | D_1, ..., D_t)      (1)

    and no data have to be kept. Here the variational layers of a model stand
    for (1): for each of their tensors the prior becomes a copy of the
    posterior, mean-field or Radial. The posterior itself stays where it is,
    so that training goes on from there, with a KL of zero in the first step.
    The approximations of all tasks add up; only where q can be exact is the
    last one that of all data.

    A Radial prior holds on to what it has learned more than a Gaussian of the
    same variances does: its density is infinite at the mean, where the KL has
    an edge, of about `1.25 D |shift / scale|` for a small shift of all D
    means. While the data pull less than that, a tensor does not move at all.
    The paper has no such edge, for its density misses the Jacobian; without
    it, what is left of the prior is `MeanField(q.mean, q.stddev)`, which
    `transform` can return.

    A model that is compiled can be trained at once. The first call traces its
    training step again, since priors of another kind are built into it; from
    the second call on only values change. `keras_bdl.Model.fit` counts the
    examples of the new task; a `dataset_size` that was given to a layer stays.
    The prior is kept by `model.save`, so that a task may begin in another
    process.

    Weights without a distribution, such as those of BatchNorm or of a bias
    with `variational_bias=False`, have no memory: freeze or avoid them.

    Args:
        model: A model with variational layers that are built. With several
            heads on one body, the model of the task that has just been
            learned: other heads stay as they are.
        layers: Layers of it, or their names, if not all. Defaults to `None`,
            all variational layers.
        transform: Function that makes the new prior of a tensor out of its
            posterior, a distribution of `keras_bdl.distributions`. With
            `lambda q: type(q)(q.mean, 2.0 * q.stddev)`, older tasks are
            forgotten gradually, in favour of new ones. Defaults to `None`,
            the posterior itself, that is (1).
        reset_optimizer: Whether the model's optimizer starts anew: moments
            and number of steps, and so the schedule of its learning rate.
            Those of the old task say nothing about the new loss. A learning
            rate that is a number stays. Defaults to `True`.

    Example:

    One head, which has all classes from the beginning:

    ```python
    model = keras_bdl.Sequential(
        [
            keras.Input((64,)),
            keras_bdl.layers.RadialDense(200, activation="relu"),
            keras_bdl.layers.RadialDense(10),
        ]
    )
    model.compile("adam", loss)
    for x, y in tasks:
        model.fit(x, y, epochs=20)
        keras_bdl.continual.posterior_becomes_prior(model)
    ```

    A head for each task, on one body:

    ```python
    inputs = keras.Input((64,))
    body = keras_bdl.layers.RadialDense(200, activation="relu")(inputs)
    heads = [keras_bdl.layers.RadialDense(2)(body) for _ in tasks]
    models = [keras_bdl.Model(inputs, head) for head in heads]
    for model, (x, y) in zip(models, tasks):
        model.compile("adam", loss)
        model.fit(x, y, epochs=20)
        keras_bdl.continual.posterior_becomes_prior(model)
    ```

    A `keras_bdl.Model` notices by itself that the priors of layers which it
    shares with `model` have changed. A plain `keras.Model` that shares layers
    with it and was trained before has to be compiled again.

    Reference:
        - Nguyen et al., [Variational Continual Learning](
          https://arxiv.org/abs/1710.10628), without coresets
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), section 4.2
    """
    if not (transform is None or callable(transform)):
        raise ValueError(
            "`transform` must be a function of a distribution, or `None`. "
            f"Received: transform={transform!r}"
        )
    selected = _selected(model, layers)
    for layer in selected:
        # Raises where a layer is not built, before any has changed.
        _ = layer.weight_posteriors
    before = [layer.prior_version for layer in selected]
    for layer in selected:
        layer.posterior_becomes_prior(transform)
    changed = before != [layer.prior_version for layer in selected]
    if changed and getattr(model, "train_function", None) is not None:
        model.make_train_function(force=True)
    optimizer = inner_optimizer(model)
    if reset_optimizer and optimizer is not None:
        with model.distribute_strategy.scope():
            restart_optimizer(optimizer)


def _selected(model, layers):
    """Returns the variational layers of a model that are meant."""
    found = [
        layer
        for layer in _keras.all_layers(model)
        if isinstance(layer, WeightPriors)
    ]
    if not found:
        raise ValueError(
            "`model` must have variational layers, such as "
            "`keras_bdl.layers.RadialDense`. "
            f"Received: model={model.name!r} without one"
        )
    if layers is None:
        return found
    by_name = {layer.name: layer for layer in found}
    selected = []
    for layer in layers:
        layer = by_name.get(layer, layer)
        if not any(layer is one for one in found):
            raise ValueError(
                "`layers` must be variational layers of the model, or their "
                f"names: {sorted(by_name)}. "
                f"Received: {getattr(layer, 'name', layer)!r}"
            )
        selected.append(layer)
    return selected


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
    new.build(_keras.optimized_variables(optimizer))
    for variable, initial in zip(
        optimizer.variables, new.variables, strict=True
    ):
        variable.assign(initial)
