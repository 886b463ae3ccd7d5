# %% [markdown]
# # Continual learning: one task after the other
#
# Data arrive in tasks, and the data of earlier tasks are gone. How does a
# network learn the next task and keep the last? At the end you have one
# function call between two tasks that does it, and a picture of what a network
# forgets with and without it.
#
# A variational layer knows how certain each of its weights is. Before the next
# task, `posterior_becomes_prior` makes that knowledge the prior: certain
# weights resist change, uncertain ones are free to learn. No old data are kept.
#
# Here, a camera reads digits. It is mounted anew three times, each time turned
# by another quarter. The network must go on reading the images of all four
# positions.

# %%
import sys

import keras
import numpy as np
from matplotlib import pyplot as plt

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS, NUM_TASKS = (1, 2) if SMOKE else (30, 4)

digits = bdl.datasets.load("digits", ood=())  # 0 to 4


def turned(part, quarters):
    """Returns turned images, and their labels."""
    x, y = part
    return np.rot90(x, quarters, axes=(1, 2)), y


tasks = [f"{90 * t} degrees" for t in range(NUM_TASKS)]
figure, axes = plt.subplots(1, NUM_TASKS, figsize=(8, 2), layout="constrained")
for t, ax in enumerate(axes):
    images, _ = turned(digits.train, t)
    ax.imshow(np.hstack(images[:3, ..., 0]), cmap="gray_r")
    ax.set(title=tasks[t], xticks=[], yticks=[])

# %% [markdown]
# ## Two networks, one with distributions
#
# The second network is a conversion of the first. Its weights start with a
# standard deviation of 0.1.

# %%
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def plain_network():
    return bdl.Sequential(
        [
            keras.Input(digits.input_shape),
            keras.layers.Flatten(),
            keras.layers.Dense(100, activation="relu"),
            keras.layers.Dense(100, activation="relu"),
            keras.layers.Dense(digits.num_classes),
        ]
    )


def variational_network():
    return bdl.convert(
        plain_network(),
        "mean_field",
        prior=bdl.priors.Normal(0.3),
        # The standard deviations are softplus(rho).
        rho_initializer=keras.initializers.Constant(np.log(np.expm1(0.1))),
    )


# %% [markdown]
# ## Learn the tasks
#
# After each task, a network takes the test of this task and of all tasks before
# it. The whole method is the line with `posterior_becomes_prior`. It also
# starts the optimizer anew.


# %%
def learn(model, variational):
    """Returns the accuracy on task k after task t, in row t and column k."""
    accuracies = np.full((NUM_TASKS, NUM_TASKS), np.nan)
    model.compile(keras.optimizers.Adam(0.01), loss)
    for t in range(NUM_TASKS):
        x, y = turned(digits.train, t)
        model.fit(x, y, epochs=EPOCHS, verbose=0)
        if variational:
            bdl.continual.posterior_becomes_prior(model)
        for k in range(t + 1):
            x, y = turned(digits.test, k)
            p = bdl.predict(model, x, verbose=0)
            accuracies[t, k] = np.mean(p.predicted_classes == y)
    return accuracies


keras.utils.set_random_seed(0)
accuracies = {
    "plain": learn(plain_network(), variational=False),
    "mean-field": learn(variational_network(), variational=True),
}
for name, table in accuracies.items():
    print(f"{name}, after the last task:", table[-1].round(3))

# %%
figure = bdl.plots.task_accuracies(
    accuracies, tasks=tasks, chance=1 / digits.num_classes
)

# %% [markdown]
# Each panel begins when its task is learned. A line that falls is forgetting.
# The plain network is best at the latest task and forgets the others. The
# mean-field network gives up a little of each new task, and keeps far more of
# the old ones.
#
# ## Loosen the grip
#
# `transform` changes the posterior on its way to the prior. A wider prior
# forgets more and learns more:
#
# ```python
# bdl.continual.posterior_becomes_prior(
#     model,
#     transform=lambda p: bdl.distributions.MeanField(p.mean, 2.0 * p.stddev),
# )
# ```
#
# The posterior of a Radial layer becomes a Gaussian prior with the same means
# and variances. `density="exact"` keeps the Radial distribution itself. Its
# density is infinite at the mean, so Radial layers then learn new tasks less
# well.
#
# ## What to keep in mind
#
# - Tasks with classes of their own need heads of their own: make a `bdl.Model`
#   per head on one body, and pass the model of the task that was just learned.
#   The other heads keep their priors. With one head for classes that come one
#   after the other, every method forgets.
# - `bdl.Model` counts the examples of each task.
# - Weights without a distribution, such as those of BatchNorm, are not
#   protected: freeze them or leave them out.
# - The prior is saved with the model, so a task may begin in another process.
# - Choose the widths on validation data of the first tasks: posteriors that are
#   too narrow let nothing move after the first task.
#
# ## Next
#
# - [Variational layers](variational_layers.py) explains the layers.
# - [Measured](../README.md): five tasks with two classes each, on digits, MNIST
#   and Fashion-MNIST. `python examples/continual_learning.py` repeats that.
# - Papers: [Nguyen et al., 2018](https://arxiv.org/abs/1710.10628), [Farquhar
#   et al., 2020](https://arxiv.org/abs/1907.00865).
