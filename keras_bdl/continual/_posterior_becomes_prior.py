"""The step from one task to the next in continual learning."""

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

import keras

from keras_bdl import _keras
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_choice
from keras_bdl._keras import inner_optimizer
from keras_bdl.layers._variational import variational_layers


def posterior_becomes_prior(
    model: keras.Model,
    layers: Iterable[Any] | None = None,
    *,
    density: str = "gaussian",
    transform: Callable[[Any], Any] | None = None,
    reset_optimizer: bool = True,
) -> None:
    """Makes the posterior of a model the prior of its next training.

    Use it between the tasks of continual learning. In sequential Bayesian
    inference, the posterior of tasks 1 to t is the prior of task t + 1,

        p(w | D_1, ..., D_t+1)  ~  p(D_t+1 | w) p(w | D_1, ..., D_t)      (1)

    so training needs no data of earlier tasks. This function applies (1) to the
    variational layers of a model. The posterior itself does not change: the
    next training starts from it. The approximation errors of all tasks add up.

    The posterior q of a mean-field layer becomes the prior as it is. For a
    Radial layer, `density` selects the prior p. The KL in the next training is
    that of the new posterior from p. With D weights of means `m_i` and scales
    `s_i` in a tensor, and `d^2 = sum_i (shift of m_i)^2 / s_i^2`, shifts of the
    means add

        "gaussian":  D d^2 / 2                                            (2)
        "exact":     about 1.25 D d, for small d                          (3)

    - `"gaussian"`: p is the Gaussian that minimises `KL(q || p)`. Its means and
      variances are those of q: each weight has `N(m_i, s_i^2 / D)`. The KL is
      smallest where the training starts.
    - `"exact"`: p is q. The density of q is infinite at the mean, so the KL has
      an edge there: a tensor moves only if the gradient of the likelihood is
      larger than the gradient of (3). Radial layers then learn later tasks
      less well.

    The paper has no such edge, because its density leaves out the Jacobian. Its
    prior is a Gaussian with variances `s_i^2`, D times those of q. Such a prior
    hardly restricts the training. To repeat the paper, take `density="exact"`
    and the `transform` `lambda q: MeanField(q.mean, q.stddev)`.

    You can train the model again without another `compile`. The first call of
    this function traces the training step again, because the kind of the prior
    changes. Later calls only change values. `keras_bdl.Model.fit` counts the
    examples of the new task, but does not change a `dataset_size` that you gave
    to a layer. `model.save` saves the prior, so a task may begin in another
    process.

    Weights without a distribution, such as those of BatchNorm or of a bias
    with `variational_bias=False`, have no prior that keeps them near the values
    of earlier tasks. Freeze or avoid such weights.

    Args:
        model: A built model with variational layers. With several heads on one
            body, pass the model of the task that was just learned: the other
            heads then keep their priors.
        layers: Layers of the model, or their names. Defaults to `None`, all
            variational layers.
        density: `"gaussian"` or `"exact"`, the prior of Radial layers. It makes
            no difference for mean-field layers. Defaults to `"gaussian"`.
        transform: Function from the distribution of a tensor that `density`
            selects, a distribution of `keras_bdl.distributions`, to its prior.
            With `lambda p: type(p)(p.mean, 2.0 * p.stddev)`, the model
            gradually forgets older tasks. Defaults to `None`: the prior is
            that distribution.
        reset_optimizer: Whether to reset the moments and the number of steps
            of the optimizer. A schedule of the learning rate then starts
            again. A learning rate that is a number does not change. Defaults
            to `True`.

    Example:

    One head with all classes:

    ```python
    tasks = [(x[y == k], y[y == k]) for k in (0, 1)]
    for x_task, y_task in tasks:
        net.fit(x_task, y_task, epochs=1)
        keras_bdl.continual.posterior_becomes_prior(net)
    ```

    One head for each task, on one body:

    ```python
    inputs = keras.Input((4,))
    body = keras_bdl.layers.RadialDense(8, activation="relu")(inputs)
    heads = [keras_bdl.layers.RadialDense(2)(body) for _ in range(2)]
    first, second = (keras_bdl.Model(inputs, head) for head in heads)
    first.compile("adam", loss)
    first.fit(x, y)
    keras_bdl.continual.posterior_becomes_prior(first)  # then train `second`
    ```

    Another `keras_bdl.Model` that shares layers with `model` detects the new
    priors. Compile a plain `keras.Model` again if it shares layers with `model`
    and was trained before.

    Reference:
        - Nguyen et al., [Variational Continual Learning](
          https://arxiv.org/abs/1710.10628), without coresets
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), section 4.2
    """
    check_choice("density", density, ("gaussian", "exact"))
    if not (transform is None or callable(transform)):
        raise ValueError(
            "`transform` must be a function of a distribution, or `None`. "
            f"Received: transform={transform!r}"
        )
    check_bool("reset_optimizer", reset_optimizer)
    selected = _selected(model, layers)
    for layer in selected:
        # Raises for a layer that is not built, before any layer changes.
        _ = layer.weight_posteriors
    before = [layer.prior_version for layer in selected]
    for layer in selected:
        layer.posterior_becomes_prior(transform, density=density)
    changed = before != [layer.prior_version for layer in selected]
    if changed and getattr(model, "train_function", None) is not None:
        model.make_train_function(force=True)
    optimizer = inner_optimizer(model)
    if reset_optimizer and optimizer is not None:
        with model.distribute_strategy.scope():
            restart_optimizer(optimizer)


def _selected(model: keras.Model, layers: Iterable[Any] | None) -> list:
    """Returns the variational layers of a model that `layers` selects."""
    found = variational_layers(model)
    if not found:
        raise ValueError(
            "`model` must have variational layers, such as "
            "`keras_bdl.layers.RadialDense`. "
            f"Received: model={model.name!r} without any"
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


def restart_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Resets the moments and the number of steps of an optimizer.

    A learning rate that is a number keeps its value. The variables stay the
    same objects, so Keras does not trace the training step again. The optimizer
    must not be a `LossScaleOptimizer`.
    """
    if not optimizer.built:
        return
    new = type(optimizer).from_config(optimizer.get_config())
    new.build(_keras.optimized_variables(optimizer))
    for variable, initial in zip(
        optimizer.variables, new.variables, strict=True
    ):
        variable.assign(initial)
