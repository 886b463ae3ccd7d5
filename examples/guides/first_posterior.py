# %% [markdown]
# # A first posterior
#
# How does a network learn to doubt what it has never seen? You train one on
# five digits and show it the other five. At the end you have four ways to get
# doubt out of an ordinary Keras training: a new optimizer, a callback, dropout,
# and several networks.
#
# You need Keras and nothing of Bayes. `python first_posterior.py` runs this
# guide in less than a minute. With `--smoke`, it takes a few seconds.

# %%
import sys

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 5 if SMOKE else 40

# %% [markdown]
# ## A new optimizer: IVON
#
# The digits 0 to 4 are for training, the digits 5 to 9 stay aside.
# `bdl.Sequential` is a `keras.Sequential` that can also train with the
# optimizers of `keras_bdl`. For a functional network, write `bdl.Model(inputs,
# outputs)`.

# %%
keras.utils.set_random_seed(0)
digits = bdl.datasets.load("digits")  # trains on 0 to 4, keeps 5 to 9 aside
model = bdl.Sequential(
    [
        keras.Input(digits.input_shape),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(digits.num_classes),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(bdl.IVON(), loss)  # in place of "adam"
model.fit(*digits.train, epochs=EPOCHS, verbose=0)

p = bdl.predict(model, digits.ood["held_out_classes"], verbose=0)
print(p.mean[0].round(3))  # probabilities of the classes 0 to 4
print(p.entropy[0].round(3))  # total uncertainty
print(p.mutual_information[0].round(3))  # what the network has not learned

# %% [markdown]
# IVON learns a mean and a width for every weight. Together they are the
# *posterior*: a distribution over networks that fit the data. `bdl.predict`
# draws 30 networks from the posterior and averages their probabilities.
# `entropy` is the whole uncertainty of the average. `mutual_information` is the
# part that comes from disagreement between the networks.
#
# ## A callback: SWAG
#
# Your training works and must stay as it is? Add a callback. SWAG collects the
# weights that the end of training visits, and fits a Gaussian to them.

# %%
ivon, model = model, keras.models.clone_model(model)  # new weights
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
swag = bdl.SWAG(start_epoch=EPOCHS // 2)
model.fit(*digits.train, epochs=EPOCHS, callbacks=[swag], verbose=0)
p = bdl.predict(model, digits.test[0], posterior=swag.posterior, verbose=0)

# %% [markdown]
# The posterior is an object of its own. The model holds the trained weights as
# before, so the same training gives three answers: the single network, SWAG,
# and IVON from above. The first digit outside 0 to 4 is a 7:

# %%
unseen = digits.ood["held_out_classes"]
ways = {
    "single network": (model, None),
    "SWAG": (model, swag.posterior),
    "IVON": (ivon, None),  # the posterior is in the model
}
figure, axes = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained")
axes[0].imshow(unseen[0, ..., 0], cmap="gray_r")
axes[0].set(title="a 7", xticks=[], yticks=[])
for ax, (name, (network, posterior)) in zip(
    axes[1:], ways.items(), strict=True
):
    p = bdl.predict(network, unseen, posterior, verbose=0)
    ax.bar(np.arange(5), p.mean[0])
    ax.set(title=name, xlabel="class", xticks=range(5), ylim=(0, 1))
    print(f"{name}, all images of the digits 5 to 9")
    print(f"  confidence above 0.99    {(p.confidence > 0.99).mean():.1%}")
    print(f"  mean mutual information  {p.mutual_information.mean():.3f}")

# %% [markdown]
# A single network cannot disagree with itself: its mutual information is 0. And
# SWAG found next to nothing, for a reason: these digits are easy, the network
# fits every training image by the time SWAG starts, the gradients vanish, and
# the weights stand still. So start earlier, while the weights still move, and
# try a larger `scale`. The scale can change after training. NLL is the negative
# log-likelihood of the true class: the loss of the training, on new data. Lower
# is better.


# %%
def train(seed):
    """Returns a network from new weights, and its SWAG posterior."""
    keras.utils.set_random_seed(seed)
    network = keras.models.clone_model(model)
    network.compile("adam", loss)
    swag = bdl.SWAG(start_epoch=EPOCHS // 8)
    network.fit(*digits.train, epochs=EPOCHS, callbacks=[swag], verbose=0)
    return network, swag.posterior


second, early = train(1)
for scale in (0.5, 2.0, 8.0):
    wider = early.with_scale(scale)
    seen = bdl.predict(second, digits.test[0], wider, verbose=0)
    p = bdl.predict(second, unseen, wider, verbose=0)
    nll = bdl.evaluate(seen, digits.test[1]).nll
    print(f"scale {scale}")
    print(f"  NLL, digits 0 to 4       {nll:.3f}")
    print(f"  mean mutual information  {p.mutual_information.mean():.3f}")
ways["SWAG"] = (second, wider)

# %% [markdown]
# What decides whether the Gaussian of SWAG is a good one:
#
# - **The learning rate** stays constant, or falls to a constant, while SWAG
#   collects. If it falls to zero, SWAG finds the single network.
#   `bdl.schedules.SWASchedule` is the schedule of the paper.
# - **`start_epoch`** is the first epoch that is collected, counted from 0.
#   `every` and `unit` say how often SWAG collects.
# - **`rank`** is the number of deviations that SWAG keeps, 20 by default. 0
#   gives a diagonal covariance: `bdl.SWAG(start_epoch, rank=0, scale=1.0)` is
#   the SWAG-Diagonal of the paper. `block=True` draws the low-rank part
#   separately for each variable.
# - **`scale`** multiplies the covariance; 0.5 is the formula of the paper.
#
# **BatchNorm.** The statistics belong to the weights they were collected with,
# and every posterior sample has other weights. Pass training data, and
# `predict` estimates the statistics again for each sample: `bdl.predict(model,
# x, swag.posterior, batch_norm_data=x_train)`. This reads the training data
# once for each sample. `batch_norm_fraction=0.1` reads a tenth. Networks
# without BatchNorm need neither argument.
#
# **The mean alone.** `bdl.SWA(start_epoch=10)` averages the weights and keeps
# no width. With `replace_weights=True`, the model holds the mean after
# training. If the model has BatchNorm, then call
# `bdl.prediction.reestimate_batch_norm(model, x)`.
#
# ## Dropout that stays on
#
# A network that was trained with dropout needs no new training: pass the
# posterior `MCDropout`. It leaves dropout on when the model predicts, and
# leaves augmentation and BatchNorm as they are in inference. A network without
# dropout gets it from `convert`, in front of every layer with a kernel. Train
# the copy:

# %%
dropped = bdl.convert(model, to="mc_dropout", rate=0.2)
dropped.compile("adam", loss)
dropped.fit(*digits.train, epochs=EPOCHS, verbose=0)
ways["MC dropout"] = (dropped, bdl.posteriors.MCDropout())

# %% [markdown]
# ## Several networks: a deep ensemble
#
# Train the same network from several seeds. `predict` uses every member once.
# An ensemble is simple and hard to beat. Its price is one training for each
# member.

# %%
members, runs = [model, second], [swag.posterior, early]
if not SMOKE:
    third, posterior = train(2)
    members.append(third)
    runs.append(posterior)
ways["ensemble"] = (model, bdl.posteriors.Ensemble.from_models(members))
ways["multi-SWAG"] = (model, bdl.posteriors.Mixture(runs))

# %% [markdown]
# Each run also had a SWAG callback, which costs almost nothing. A `Mixture` of
# the SWAG posteriors of several runs is multi-SWAG. `Mixture` takes posteriors
# of any kind, also of several variational networks, and from earlier runs:
# `swag.posterior.save("run_0.bdl")`, then `bdl.posteriors.load("run_0.bdl")`.
#
# ## All of them
#
# The histograms show the entropies of known digits and of unknown ones. The
# less they overlap, the better. AUROC is the probability that an unknown digit
# has a higher entropy than a known one: 0.5 is chance, 1 is perfect.

# %%
figure, axes = plt.subplots(2, 3, figsize=(10, 5.5), layout="constrained")
for ax, (name, (network, posterior)) in zip(
    axes.flat, ways.items(), strict=True
):
    seen = bdl.predict(network, digits.test[0], posterior, verbose=0)
    p = bdl.predict(network, unseen, posterior, verbose=0)
    report = bdl.evaluate(seen, digits.test[1], ood={"5 to 9": p})
    auroc = report.ood["5 to 9"]["entropy"]["auroc"]
    bdl.plots.entropy_histograms(seen, p, ax=ax)
    ax.set_title(f"{name}: AUROC {auroc:.3f}")

# %% [markdown]
# These digits are easy, and entropy alone separates them well, even that of a
# single network. The methods differ more when the images are turned, blurred or
# noisy: [Is it honest?](honesty.py)
#
# ## What next
#
# - Your network is trained, and you cannot train again:
#   [trained_model](trained_model.py).
# - You want a number that says how good the uncertainty is:
#   [honesty](honesty.py).
# - Which method for your problem: [choose](choose.md). What goes wrong most
#   often: [gotchas](gotchas.md).
# - You have to act on the answer: [decisions](decisions.py).
# - Save, resume a killed run, export: [serving](serving.py).
# - Learning rates and other settings of every method: [settings](settings.md).
#   Words of the API: [words](words.md).
#
# References: [Shen et al., 2024](https://arxiv.org/abs/2402.17641) (IVON),
# [Izmailov et al., 2018](https://arxiv.org/abs/1803.05407) (SWA), [Maddox et
# al., 2019](https://arxiv.org/abs/1902.02476) (SWAG), [Wilson and Izmailov,
# 2020](https://arxiv.org/abs/2002.08791) (multi-SWAG), [Gal and Ghahramani,
# 2016](https://arxiv.org/abs/1506.02142) (MC dropout), [Lakshminarayanan et
# al., 2017](https://arxiv.org/abs/1612.01474) (ensembles).
