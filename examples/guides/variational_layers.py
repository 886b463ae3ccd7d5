# %% [markdown]
# # Variational layers: choose which layers are uncertain
#
# Which weights of a network should be uncertain, and how do you make them so?
# At the end you have converted a trained network with one function, made only
# its last layer Bayesian, and built a network from Bayesian layers yourself.
#
# An ordinary layer learns one number for each weight. A *variational* layer
# learns two: a mean and a standard deviation. Each call in training draws the
# weights anew. A prediction averages over many such networks.
#
# First, an ordinary network learns the digits 0 to 4. It never sees the digits
# 5 to 9.

# %%
import sys

import keras
import numpy as np
from matplotlib import pyplot as plt

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 2 if SMOKE else 40

keras.utils.set_random_seed(0)
digits = bdl.datasets.load("digits")
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model = keras.Sequential(
    [
        keras.Input(digits.input_shape),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(digits.num_classes),
    ]
)
model.compile("adam", loss)
model.fit(*digits.train, epochs=EPOCHS, verbose=0)

# %% [markdown]
# ## Convert the trained network
#
# `convert` copies any Keras model and replaces its layers. The trained weights
# become the means. `prior_from_weights=0.1` puts prior and posterior around
# these weights, with a standard deviation of 10 % of each weight. Training goes
# on from there.

# %%
net = bdl.convert(model, to="mean_field", prior_from_weights=0.1)
net.compile("adam", loss)
net.fit(*digits.train, epochs=EPOCHS, verbose=0)
known = bdl.predict(net, digits.test[0], verbose=0)
unknown = bdl.predict(net, digits.ood["held_out_classes"], verbose=0)
print(bdl.evaluate(known, digits.test[1], ood=unknown))

# %% [markdown]
# The report begins with the quality on known digits. The block "Out of
# distribution" at its end says how well an uncertainty tells digits 5 to 9 from
# known ones: an AUROC of 1 is perfect, 0.5 is chance.
#
# What did training change? The loss has two parts. `nll` asks the drawn
# networks to be right. `kl` is the distance between the distribution of the
# weights and their prior, divided by the number of examples. `fit` counts the
# examples.
#
# ## How wide should the weights be?
#
# `prior_from_weights` is the dial. With 0.1, the drawn networks are nearly
# alike, so the average is as sure as the ordinary network. With 1, each weight
# varies as much as it is large. The next cell turns the dial, once for all
# layers and once for the last layer alone. `to` takes a dictionary from layers
# to words. A class of layers, a name, a layer or a function selects layers.

# %%
WIDTHS = (1.0,) if SMOKE else (0.1, 0.3, 1.0)
unseen = digits.ood["held_out_classes"]
choices = {
    "last layer": {model.layers[-1].name: "mean_field"},
    "all layers": "mean_field",
}
if SMOKE:
    del choices["all layers"]


def quality(net):
    """Returns the NLL of known digits, and the share of sure answers to others.

    A sure answer to a digit that the network has never seen is always wrong.
    """
    known = bdl.predict(net, digits.test[0], verbose=0)
    unknown = bdl.predict(net, unseen, verbose=0)
    return (
        bdl.evaluate(known, digits.test[1]).nll,
        np.mean(unknown.confidence > 0.99),
    )


curves, nets = {}, {}
ordinary = quality(model)
for name, to in choices.items():
    curves[name] = [ordinary]
    for width in WIDTHS:
        net = bdl.convert(model, to, prior_from_weights=width, verbose=0)
        net.compile(keras.optimizers.Adam(3e-3), loss)
        net.fit(*digits.train, epochs=EPOCHS // 2, verbose=0)
        curves[name].append(quality(net))
    nets[name] = net

figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
labels = ["ordinary", *map(str, WIDTHS)]
for name, curve in curves.items():
    for ax, values in zip(axes, np.transpose(curve), strict=True):
        ax.plot(labels, values, "o-", label=name)
        ax.set_xlabel("prior_from_weights")
axes[0].set_ylabel("NLL of known digits")
axes[1].set_ylabel("unknown digits with confidence > 0.99")
for ax in axes:
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False)

# %% [markdown]
# Lower is better in both pictures. Wider weights stop the network from being
# sure of digits that it has never seen, and they cost something on the digits
# that it knows. Choose the width on validation data. The last layer alone is
# the cheapest choice and gains less. With narrow weights, the network may even
# become surer, because it trains longer.
#
# The entropy of a prediction is 0 where the network is sure. Left the ordinary
# network, right the widest weights in all layers:

# %%
figure, axes = plt.subplots(
    1, 2, figsize=(9, 3.5), sharey=True, layout="constrained"
)
shown = {"ordinary": model, "prior_from_weights=1": nets[name]}
for ax, (title, net) in zip(axes, shown.items(), strict=True):
    pair = [bdl.predict(net, x, verbose=0) for x in (digits.test[0], unseen)]
    bdl.plots.entropy_histograms(*pair, ax=ax)
    ax.set_title(title)

# %% [markdown]
# ## What `convert` does with other layers
#
# `convert` prints which layers it converted. Normalisation layers stay as they
# are, and so do layers without a rule, such as `LSTM`; the summary names these.
# With `strict=True` they raise an error. In a layer with `enable_lora` the two
# factors of the adapter get distributions: [fine-tuning](fine_tuning.py).
# Without `prior_from_weights`, the prior is N(0, 1), and `prior=` takes another
# one.
#
# ## Build a network from variational layers
#
# The layers have the arguments of their Keras namesakes: `Dense`,
# `EinsumDense`, `Conv1D`, `Conv2D`, `Conv3D`, `Conv2DTranspose`,
# `DepthwiseConv2D`, `Embedding`. `MeanField*` layers draw independent Gaussian
# weights. `Radial*` layers draw one direction and one length for a whole
# kernel.
#
# A new network has much to learn, and noise and prior stand in its way. Two
# callbacks let it warm up. `PretrainMeans` trains without noise for some
# epochs. `KLAnnealing` raises the weight of the prior slowly.

# %%
net = bdl.Sequential(
    [
        keras.Input(digits.input_shape),
        keras.layers.Flatten(),
        bdl.layers.RadialDense(64, activation="relu"),
        bdl.layers.MeanFieldDense(digits.num_classes, estimator="flipout"),
    ]
)
net.compile(keras.optimizers.Adam(3e-3), loss)
warm_up = [
    bdl.callbacks.PretrainMeans(end_epoch=2),
    bdl.callbacks.KLAnnealing(end_epoch=10),
]
history = net.fit(
    *digits.train, epochs=EPOCHS, callbacks=warm_up, verbose=0
).history

figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for ax, name in zip(axes, ("nll", "kl"), strict=True):
    ax.plot(history[name])
    ax.set(xlabel="epoch", ylabel=name)
axes[0].set_yscale("log")

# %% [markdown]
# `nll` falls at once, `kl` slowly: training gives up precision that the data do
# not ask for. So train long. `compile(..., samples=10)` makes `evaluate` and
# validation average over 10 drawn networks, too; by default, they use the
# means.
#
# `keras_bdl.Sequential` and `keras_bdl.Model` count the training examples, on
# which the weight of the KL depends. In a plain `keras.Model`, pass
# `dataset_size=50_000` to each layer. If you write your own `keras.Model` with
# a `call` method, give `call` the argument `training=None`. Without it, Keras
# never tells the layers that they train, and they draw nothing.
#
# Arguments that all variational layers have:
#
# - `prior`: distribution of the weights before the data. `None` is
#   `Normal(1.0)`.
# - `estimator`: how a layer draws, see below.
# - `rho_initializer`: start of the standard deviations, which are
#   `softplus(rho)`. `None` is -5.
# - `variational_bias`: whether the bias has a distribution, too.
#
# ## How noisy is the gradient?
#
# Drawn weights make the gradient noisy, and noise makes training slow.
# `gradient_variance` measures the noise. With `"weight"`, a batch has one draw.
# `"flipout"` gives each example other signs. `"local"` puts the noise into the
# outputs. All of these layers start with the same standard deviations:

# %%
KINDS = {
    "mean-field, weight": (bdl.layers.MeanFieldDense, "weight"),
    "mean-field, flipout": (bdl.layers.MeanFieldDense, "flipout"),
    "mean-field, local": (bdl.layers.MeanFieldDense, "local"),
    "radial, weight": (bdl.layers.RadialDense, "weight"),
}
batch = [array[:64] for array in digits.train]
noise = {}
for name, (layer, estimator) in list(KINDS.items())[: 1 if SMOKE else None]:
    keras.utils.set_random_seed(0)
    dense = bdl.Sequential([keras.Input(digits.input_shape)])
    dense.add(keras.layers.Flatten())
    for units in (64, digits.num_classes):
        rho = keras.initializers.Constant(-3.0)
        dense.add(layer(units, estimator=estimator, rho_initializer=rho))
    dense.compile("adam", loss)
    report = bdl.diagnostics.gradient_variance(
        dense, batch, samples=2 if SMOKE else 50, verbose=0
    )
    noise[name] = report.means["variance"]

figure, ax = plt.subplots(figsize=(7, 2.5), layout="constrained")
ax.barh(list(noise), list(noise.values()))
ax.set(xscale="log", xlabel="variance of the gradient of the means")
ax.invert_yaxis()

# %% [markdown]
# `"local"` has the least noise of the mean-field layers. It is exact for
# mean-field `Dense` layers on vectors, an approximation for other mean-field
# layers, and refused by Radial ones.
#
# ## If training fails
#
# - **The network ignores the data.** The KL is too strong at the start. Use
#   `PretrainMeans`, `KLAnnealing`, or a smaller initial `rho`.
# - **The gradient is noisy.** Use `estimator="flipout"`, or `train_samples=4`
#   in `compile`.
#
# ## Next
#
# - [Continual learning](continual_learning.py): the posterior of one task is
#   the prior of the next.
# - [Regression](regression.py) uses the same layers.
# - [Natural gradients](natural_gradients.py) leave the layers as they are.
# - [Measured](../README.md): the cost of each estimator, and mean-field beside
#   Radial layers over a range of settings.
# - Papers: [Blundell et al., 2015](https://arxiv.org/abs/1505.05424)
#   (mean-field), [Farquhar et al., 2020](https://arxiv.org/abs/1907.00865)
#   (Radial), [Wen et al., 2018](https://arxiv.org/abs/1803.04386) (flipout),
#   [Krishnan et al., 2019](https://arxiv.org/abs/1906.05323) (priors from
#   weights).
