# %% [markdown]
# # A posterior from the optimizer
#
# Your network is fine as it is. Can the training alone make it Bayesian? At the
# end you have replaced the optimizer, or the loss, and the same network knows
# how sure each of its weights is.
#
# An optimizer for *natural gradients* moves the weights of an ordinary model,
# as Adam does, and learns along the way how exactly the data determine each
# weight. Weights that the data determine get a narrow Gaussian, others a wide
# one. These Gaussians are the posterior.

# %%
import sys
import time

import keras
import numpy as np
from matplotlib import pyplot as plt

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 1 if SMOKE else 30

digits = bdl.datasets.load("digits", classes=range(8))  # 8 and 9 are unknown
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network():
    """Returns the same new network each time."""
    keras.utils.set_random_seed(0)
    return bdl.Sequential(
        [
            keras.Input(digits.input_shape),
            keras.layers.Conv2D(8, 3, activation="gelu"),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="gelu"),
            keras.layers.Dense(digits.num_classes),
        ]
    )


def cosine(learning_rate):
    """Returns a learning rate that falls to zero."""
    steps = EPOCHS * -(-len(digits.train[0]) // 32)
    return keras.optimizers.schedules.CosineDecay(learning_rate, steps)


# %% [markdown]
# ## Replace the optimizer
#
# `bdl.Sequential` and `bdl.Model` train with these optimizers. Make a
# `bdl.Model` from any functional model: `bdl.Model(model.inputs,
# model.outputs)`. Start with `IVON`: a step costs about as much as a step of
# Adam, and every layer type works.

# %%
model = network()
model.compile(bdl.IVON(cosine(0.05)), loss)
model.fit(*digits.train, epochs=EPOCHS, verbose=0)

p = bdl.predict(model, digits.test[0], verbose=0)
print("accuracy", np.mean(p.predicted_classes == digits.test[1]).round(3))

# %% [markdown]
# The optimizer holds the posterior. `bdl.predict` finds it and averages over 30
# networks drawn from it. `bdl.posterior_of` returns it. A sample is a list of
# weights. How far do the weights of one layer vary, compared with their size?

# %%
posterior = bdl.posterior_of(model)
means = posterior.mean()
draws = [posterior.sample(seed) for seed in range(30)]
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for index, label in ((0, "convolution"), (2, "first dense layer")):
    spread = np.std([draw[index] for draw in draws], axis=0)
    ratio = np.log10(np.abs(means[index]) / spread).ravel()
    ax.hist(
        ratio,
        np.linspace(-2, 1.5, 22),
        density=True,
        histtype="step",
        label=label,
    )
ax.axvline(0, color="black", linestyle=":")
ax.set(xlabel="log10 of |mean| / standard deviation", ylabel="density")
ax.legend(frameon=False, loc="upper left")

# %% [markdown]
# Left of the dotted line are weights whose sign the data leave open.
#
# ## The family
#
# - `VOGN` computes the curvature from the gradients of single examples.
# - `NoisyKFAC` also learns correlations within each layer. It costs most.
# - `OGN` and `KFAC` are the same two, trained without noise. `bdl.predict` uses
#   their means, because samples around them are often much worse.
#
# ## Or replace the loss
#
# An *objective* replaces the loss in training. Any Keras optimizer without
# weight decay minimises it.
#
# - `SampledVI`: the loss at drawn weights. Any activation works.
# - `TaylorVI`: the loss plus a penalty on the gradient. Nothing is drawn, so
#   training has no noise. It differentiates twice: use smooth activations, such
#   as GELU, softplus, SiLU or tanh.
# - `MAP`: the loss plus the prior, for comparison. It has no posterior.
#
# `"fixed"` gives all weights one standard deviation, 0.03 by default. Wider
# posteriors are better under shift, narrower ones lose less accuracy where data
# are few.

# %%
methods = {
    "Adam": lambda: (keras.optimizers.Adam(cosine(3e-3)), None),
    "IVON": lambda: (bdl.IVON(cosine(0.05)), None),
    "VOGN": lambda: (bdl.VOGN(cosine(0.05)), None),
    "Noisy K-FAC": lambda: (bdl.NoisyKFAC(cosine(0.05)), None),
    "sampled VI": lambda: (
        keras.optimizers.Adam(cosine(3e-3)),
        bdl.objectives.SampledVI("fixed"),
    ),
    "Taylor VI": lambda: (
        keras.optimizers.Adam(cosine(3e-3)),
        bdl.objectives.TaylorVI("fixed"),
    ),
}
if SMOKE:
    methods = {name: methods[name] for name in ("VOGN", "sampled VI")}

# %% [markdown]
# All of them train the same network on the same digits. Then the test images
# turn: an honest network loses confidence as it loses accuracy.

# %%
SEVERITIES = (3,) if SMOKE else (1, 2, 3, 4, 5)
turned = [
    bdl.datasets.corrupt(digits.test[0], "rotation", severity)
    for severity in SEVERITIES
]
unseen = digits.ood["held_out_classes"]
reports = {}
for name, make in methods.items():
    optimizer, objective = make()
    model = network()
    model.compile(optimizer, loss, objective=objective)
    start = time.perf_counter()
    model.fit(*digits.train, epochs=EPOCHS, verbose=0)
    seconds = time.perf_counter() - start
    p, q, *shifted = (
        bdl.predict(model, images, verbose=0)
        for images in (digits.test[0], unseen, *turned)
    )
    reports[name] = bdl.evaluate(
        p, digits.test[1], ood=q, shift={"rotation": shifted}
    )
    print(f"{name:12} trained in {seconds:4.1f} s")

print(bdl.evaluation.table(reports, scores=["accuracy", "nll", "ece"]))

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
bdl.plots.shift(reports, ax=axes[0])
axes[0].set_title("test images that turn")
scores = [r.ood["ood"]["entropy"]["auroc"] for r in reports.values()]
axes[1].barh(list(reports), scores)
axes[1].set(xlim=(0.5, 1), xlabel="AUROC: unknown digits by their entropy")
axes[1].invert_yaxis()

# %% [markdown]
# NLL is the negative log-likelihood of the true class, ECE the mean gap between
# confidence and accuracy: lower is better. On images like those of training,
# the differences are small, and an interval that contains 0 means that a
# difference may be chance. They grow as the images turn: Adam alone stays sure
# of what it no longer knows. This is one run with one seed; [the
# README](../../README.md#measured-on-images) has a table of more methods, with
# three.
#
# ## Settings of the optimizers
#
# - `learning_rate`: 0.05 by default. It means what it means for SGD with the
#   same momentum. Let it fall along a cosine.
# - `train_samples=5` in `compile`: posterior samples in a training step.
#   `samples=10`: in `evaluate` and validation.
# - `prior_precision`: precision of the prior `N(0, 1/prior_precision)` of every
#   weight.
# - `temperature`: below 1 the posterior is narrower. It tempers the likelihood
#   alone. With few data, try `0.1`.
# - `initial_curvature`: start of the curvature, by default `12 / sqrt(N)`, or
#   `min(1500 / N, 2)` if that is larger. A smaller value makes the first
#   samples wider. Steps are multiplied by it, so a learning rate keeps its
#   meaning; `rescale_learning_rate=False` turns that off.
# - `beta_1`, `beta_2`: decays, as in Adam. Some papers print `1 - beta_2`.
# - `curvature_every=10` (VOGN; the default of Noisy K-FAC): the curvature of
#   every tenth step only. The other steps cost about as much as those of Adam.
# - `exclude_from_inference`: layers without prior and noise. By default,
#   BatchNorm.
# - `gradient_accumulation_steps=4`: one step for each four batches, as in
#   Keras, with the noise and the curvature of the whole. The four share a
#   posterior sample; `share_sample=False` gives each its own. Samplers such as
#   `ATMC` have the argument, too.
#
# ## Settings of the objectives
#
# Beside `"fixed"`, `"scalar"` learns one variance for each tensor, `"diagonal"`
# one for each weight. Learned variances need enough data. A network that fits
# all its training data has no gradient left, so learned variances of Taylor VI
# grow to those of the prior, and drawn networks predict at random. Then use a
# small fixed variance, the means alone, or `SampledVI`. With BatchNorm, pass
# training data to `bdl.predict(..., batch_norm_data=x)`.
#
# ## The curvature alone
#
# `bdl.curvature` has what VOGN and K-FAC compute: means over the examples that
# would need a loop, from one backward pass.

# %%
x, y = (array[:64] for array in digits.train)
gradients, squares = bdl.curvature.second_moments(model, (x, y))
factors = bdl.curvature.kronecker_factors(model, (x, y))
for variable, square in zip(model.trainable_variables, squares, strict=True):
    print(f"{variable.path:30} {float(np.mean(square)):.2e}")

# %% [markdown]
# Layers with `enable_lora` have exact rules for their two factors. A small
# layer without a rule, such as the positions of a transformer, is
# differentiated example by example, and a warning names it. A layer with more
# than a million weights and without a rule raises an error.
# `bdl.extend.register_rule` adds a rule.
#
# ## Next
#
# - [Choosing settings](settings.md): what each argument did to accuracy and
#   probabilities.
# - [Measured](../README.md): the cost of a step by network, VOGN and IVON
#   beside MC dropout, Taylor VI over a range of variances.
# - [Variational layers](variational_layers.py) choose layer by layer.
# - Papers: [Shen et al., 2024](https://arxiv.org/abs/2402.17641) (IVON), [Osawa
#   et al., 2019](https://arxiv.org/abs/1906.02506) (VOGN), [Zhang et al.,
#   2018](https://arxiv.org/abs/1712.02390) (Noisy K-FAC), [Unlu and Aitchison,
#   2020](https://arxiv.org/abs/2011.10443) (Taylor VI), [Blundell et al.,
#   2015](https://arxiv.org/abs/1505.05424) (sampled VI).
