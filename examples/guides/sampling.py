# %% [markdown]
# # Sampling, and whether to believe it
#
# Other methods fit a shape to the posterior. A sampler walks through it, and
# its path is a *chain*. How do you run one, and how do you find out that it has
# not arrived yet? You sample a small network with ATMC, check two chains with
# four instruments, and see chains that do not *mix*: each stays where it began.
#
# Sample when you want the posterior itself and can afford a long training. If
# you need a cheap answer, start with [a first posterior](first_posterior.py).

# %%
import sys

import keras
import matplotlib.pyplot as plt

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS, BURN_IN, CYCLE = (12, 4, 2) if SMOKE else (600, 200, 10)
TRAIN, BATCH = 200, 50

digits = bdl.datasets.load("digits", classes=range(10))
x, y = (part[:TRAIN] for part in digits.train)
x_test, y_test = digits.test
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network():
    return bdl.Sequential(
        [
            keras.Input(digits.input_shape),
            keras.layers.Flatten(),
            keras.layers.Dense(20, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


# %% [markdown]
# ## A chain
#
# A sampler is an optimizer that adds noise of the right size: its weights do
# not stop at the best network, they wander among the good ones. The learning
# rate falls in cycles. `SampleCollector` keeps the last weights of each cycle.
# It skips the first epochs, the *burn-in*, in which the chain forgets its
# start. `ChainDiagnostics` measures while training runs.


# %%
def chain(seed, epochs=EPOCHS, **options):
    """Returns a model, its collected samples, and measurements."""
    keras.utils.set_random_seed(seed)
    # A new order in every epoch, also after a restart.
    order = bdl.datasets.EpochCounter()
    batches = order.batches((x, y), BATCH, seed=seed)
    cycle = bdl.schedules.CyclicalCosine(0.03, CYCLE * TRAIN // BATCH)
    model = network()
    model.compile(
        bdl.ATMC(cycle, prior=bdl.priors.Normal(0.3), seed=seed, **options),
        loss,
    )
    samples = bdl.callbacks.SampleCollector(cycle, start_epoch=BURN_IN)
    diagnostics = bdl.callbacks.ChainDiagnostics(verbose=0)
    model.fit(
        batches,
        epochs=epochs,
        shuffle=False,  # the data are shuffled already
        callbacks=[order, samples, diagnostics],
        verbose=0,
    )
    return model, samples, diagnostics


model, samples, diagnostics = chain(seed=0)
p = bdl.predict(model, x_test, posterior=samples.posterior, verbose=0)
one = bdl.predict(model, x_test, verbose=0)
print(f"one sample   NLL {bdl.evaluate(one, y_test).nll:.3f}")
print(f"all samples  NLL {bdl.evaluate(p, y_test).nll:.3f}")

# %% [markdown]
# One sample is a mediocre network: it carries the noise. The average over the
# samples is the prediction.
#
# What to set:
#
# - **Number of examples.** `bdl.Model` and `bdl.Sequential` count the training
#   data. With a plain `keras.Model`, write `bdl.ATMC(...,
#   dataset_size=50_000)`.
# - **Loss.** The mean negative log-likelihood, such as a cross-entropy or
#   `bdl.likelihoods.Gaussian`.
# - **Prior.** By default `N(0, 8 / inputs)` for the kernel of a layer and
#   `N(0, 1)` for its bias. `None` is flat: weights that the data do not
#   determine then grow without end. A layer with one of `bdl.priors` as its
#   regularizer keeps that prior. Weight decay raises an error, because it would
#   change the posterior.
# - **Step size.** `average_speed` is the distance that a weight moves in a
#   step, `0.15 / sqrt(N)` by default.
# - **Temperature.** `temperature=0.1` samples a sharper distribution.
# - **Shuffling.** After `set_random_seed`, Keras reuses one shuffle of arrays
#   in every epoch, which biases samplers. Here, `EpochCounter` makes the order
#   from seed and epoch, and is a callback of `fit`. With a
#   `bdl.callbacks.Checkpoint`, a killed chain then continues exactly. `shuffle`
#   of `tf.data` begins with its first order again after a restart.
# - **Seed.** Without `seed`, a sampler draws one when you make it, and
#   `keras.utils.set_random_seed` decides which.
# - **Network.** BatchNorm and sampling do not go well together. The paper has a
#   network without: `bdl.applications.ResNetPlusPlus56()`.
#
# ## Instrument 1: temperatures
#
# After the burn-in, two averages should be equal to the temperature of the
# chain, which is 1 here, for every variable: one of the velocities of the
# weights (*kinetic*), one of weights and gradients (*configurational*). The
# table says "out of its band" for the first and "far from T" for the second.

# %%
print(diagnostics.table())

# %% [markdown]
# 99 % of the variables should lie in their band. If fewer do, the steps are too
# long, or the sampler has no thermostat, which takes out the noise of the
# gradients. A configurational temperature far from 1 belongs to a variable that
# still remembers its start.
#
# ## Instruments 2 to 4: two chains
#
# Start a second chain from other weights, with another seed: chains that share
# their noise agree without having arrived, and `convergence` warns of them.
# Look at what the chains *predict*:
# weights have symmetries, predictions do not. Here is the probability of the
# true class of one image, sample by sample:

# %%
_, others, _ = chain(seed=1)
images = x_test[:100]
probabilities = bdl.diagnostics.prediction_chains(
    [samples, others], model, images, verbose=0
)
unsure = int(p.entropy[:100].argmax())
entry = (unsure, int(y_test[unsure]))
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
bdl.plots.trace(
    probabilities, entry=entry, label="p(true class) of one image", ax=axes[0]
)
bdl.plots.autocorrelation(probabilities, entry=entry, ax=axes[1])

# %% [markdown]
# *Trace* (left): chains that have converged cross each other all the time, and
# none of them drifts. *Autocorrelation* (right): how long a sample remembers
# the one before. *R-hat* compares the spread between chains with the spread
# within them, for all images and classes. Near 1 is good. If some are above
# 1.1, as about one in ten here, train longer. *ESS*, the effective sample size,
# is the number of independent samples that these samples are worth:

# %%
print(bdl.diagnostics.convergence(probabilities))

# %% [markdown]
# ## A chain that does not mix
#
# The same sampler, too slow: a hundredth of the speed.

# %%
if not SMOKE:
    slow = [chain(seed, 350, average_speed=1e-4)[1] for seed in (0, 1)]
    stuck = bdl.diagnostics.prediction_chains(slow, model, images, verbose=0)
    bdl.plots.trace(stuck, entry=entry, label="p(true class) of one image")
    found = bdl.diagnostics.convergence(stuck)
    print(f"median R-hat {found.total['r_hat_median']:.2f}")

# %% [markdown]
# Each line goes its own way. `SampleCollector` warns after a training that
# still drifts; it needs about eight samples to tell. What helps, in this order:
#
# 1. Train longer, and start collecting later.
# 2. Raise `average_speed`, as long as the temperatures stay in their bands.
# 3. Use longer cycles, so that samples forget more in between.
# 4. Give the sampler a narrower `prior`. Under a flat one, directions that the
#    data do not determine have no equilibrium.
#
# ## Other samplers
#
# - **`bdl.ATMC`**: one thermostat per weight measures the noise of the
#   minibatches and adds only the friction that is missing.
# - **`bdl.SGNHT`**: one thermostat per weight; the friction is always added.
# - **`bdl.SGHMC`**: constant friction, no thermostat. The noise of the
#   minibatches makes samples too wide.
# - **`bdl.SGLD`**: no momentum. The learning rate means what it means for SGD.
#
# They have the same interface. Start with `ATMC`.
#
# ## What next
#
# - A long chain survives a kill with `bdl.callbacks.Checkpoint`:
#   [serving](serving.py). `SampleCollector(directory=...)` keeps the samples on
#   disk.
# - Speeds, priors and temperatures, measured: [settings](settings.md).
# - A small ResNet++ with chains, diagnostics and calibration:
#   `examples/sampling.py`, one of the [examples](../README.md).
# - Noise of gradients, the shape of the loss, the Hessian:
#   [diagnostics](diagnostics.md).
#
# References: [Heek and Kalchbrenner, 2019](https://arxiv.org/abs/1908.03491)
# (ATMC), [Ding et al., 2014](https://papers.nips.cc/paper/5592) (SGNHT), [Chen
# et al., 2014](https://arxiv.org/abs/1402.4102) (SGHMC), [Vehtari et al.,
# 2021](https://arxiv.org/abs/1903.08008) (R-hat and ESS).
