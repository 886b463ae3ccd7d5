# %% [markdown]
# # Continual learning: one task after the other
#
# A network learns 0 and 1, then 2 and 3, and so on. The images of earlier tasks
# are gone. How does the network keep what it has learned? At the end you have
# one function call between two tasks that does it, and a picture of what a
# network forgets with and without it.
#
# A variational layer knows how certain each of its weights is. Before the next
# task, `posterior_becomes_prior` makes that knowledge the prior: certain
# weights resist change, uncertain ones are free to learn. No old data are kept.
#
# Five tasks, two digits each:

# %%
import sys

import keras
import numpy as np
from matplotlib import pyplot as plt

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS, NUM_TASKS, UNITS = (1, 2, (8,)) if SMOKE else (50, 5, (100, 100))

tasks = [
    bdl.datasets.load("digits", classes=(first, first + 1), ood=())
    for first in range(0, 2 * NUM_TASKS, 2)
]
names = [f"{first} or {first + 1}" for first in range(0, 2 * NUM_TASKS, 2)]

figure, axes = plt.subplots(1, NUM_TASKS, figsize=(9, 2), layout="constrained")
for ax, task, name in zip(axes, tasks, names, strict=True):
    ax.imshow(np.hstack(task.train[0][:2, ..., 0]), cmap="gray_r")
    ax.set(title=name, xticks=[], yticks=[])

# %% [markdown]
# ## Two networks, one with distributions
#
# Both networks have one body and a head for each task. Each head on the body is
# a `bdl.Model`, so that `fit` counts the examples of its task. The second
# network is a conversion of the first.

# %%
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def plain_network():
    return bdl.applications.MultiHeadMLP(
        tasks[0].input_shape, heads=NUM_TASKS, classes=2, units=UNITS
    )


def variational_network():
    return bdl.convert(
        plain_network(),
        "mean_field",
        prior=bdl.priors.Normal(0.3),
        # The standard deviations, softplus(rho), start at 0.1.
        rho_initializer=keras.initializers.Constant(np.log(np.expm1(0.1))),
    )


# %% [markdown]
# ## Learn the tasks
#
# After each task, the networks take the test of this task and of all tasks
# before it. The whole method is the line with `posterior_becomes_prior`.


# %%
def learn(network, variational):
    """Returns the accuracy on task k after task t, in row t and column k."""
    models = [bdl.Model(network.input, head) for head in network.outputs]
    accuracies = np.full((NUM_TASKS, NUM_TASKS), np.nan)
    for t, (model, task) in enumerate(zip(models, tasks, strict=True)):
        steps = EPOCHS * -(-len(task.train[0]) // 32)
        rate = keras.optimizers.schedules.CosineDecay(0.01, steps)
        model.compile(keras.optimizers.Adam(rate), loss)
        model.fit(*task.train, epochs=EPOCHS, verbose=0)
        if variational:
            bdl.continual.posterior_becomes_prior(model)
        for k in range(t + 1):
            x, y = tasks[k].test
            p = bdl.predict(models[k], x, verbose=0)
            accuracies[t, k] = np.mean(p.predicted_classes == y)
    return accuracies


keras.utils.set_random_seed(0)
accuracies = {
    "fine-tuned": learn(plain_network(), variational=False),
    "mean-field": learn(variational_network(), variational=True),
}
for name, table in accuracies.items():
    print(f"{name}: accuracy on each task, after the last one")
    print("   ", dict(zip(names, table[-1].round(3).tolist(), strict=True)))

# %%
figure = bdl.plots.task_accuracies(accuracies, tasks=names, chance=0.5)

# %% [markdown]
# Each panel begins when its task is learned. A line that falls is forgetting.
# The plain network overwrites its body, and old heads no longer fit. The
# mean-field network keeps the first tasks. It pays with freedom: the more tasks
# it has learned, the less its weights can move, so later tasks may be learned
# less well.
#
# ## Loosen the grip
#
# `transform` changes the posterior on its way to the prior. A wider prior
# forgets more and learns more:
#
# ```python
# bdl.continual.posterior_becomes_prior(
#     model,
#     transform=lambda q: bdl.distributions.MeanField(q.mean, 2.0 * q.stddev),
# )
# ```
#
# A Radial prior holds on to old tasks more strongly than a Gaussian: its
# density is infinite at the mean. To loosen it, return
# `bdl.distributions.MeanField(q.mean, q.stddev)`.
#
# ## What to keep in mind
#
# - With one head per task on a shared body, pass the model of the task that was
#   just learned. The other heads keep their priors.
# - Weights without a distribution, such as those of BatchNorm, are not
#   protected: freeze them or leave them out.
# - With one head for all ten digits and no old data, every method forgets. Give
#   each task a head, or keep some old images.
# - The prior is saved with the model, so a task may begin in another process.
# - Choose the widths on validation data of the first tasks: posteriors that are
#   too narrow let nothing move after the first task.
#
# ## Next
#
# - [Variational layers](variational_layers.py) explains the layers.
# - [Measured](../README.md): four methods, three seeds, with standard errors.
#   `python examples/continual_learning.py` repeats that, also with one head.
# - Papers: [Nguyen et al., 2018](https://arxiv.org/abs/1710.10628), [Farquhar
#   et al., 2020](https://arxiv.org/abs/1907.00865).
