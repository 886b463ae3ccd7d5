# %% [markdown]
# # Is it honest?
#
# A network says "90 %". Is it right nine times in ten, also when the images are
# blurred, and does it notice images of something else? You learn to ask these
# questions of any Keras classifier, and get a report, four pictures and a table
# that says which differences could be chance.

# %%
import sys

import keras
import matplotlib.pyplot as plt

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 2 if SMOKE else 30
SEEDS = (0,) if SMOKE else (0, 1, 2)
KINDS = ("rotation",) if SMOKE else ("rotation", "blur", "noise")
SEVERITIES = (3,) if SMOKE else (1, 2, 3, 4, 5)

# %% [markdown]
# ## Two networks to question
#
# Both have the same layers and the same 300 images of the digits 0 to 7. One is
# trained by Adam, one by IVON, which learns a [posterior](first_posterior.py).
# Three seeds each: one training says little about a method.

# %%
digits = bdl.datasets.load("digits", classes=range(8))
x, y = (part[:300] for part in digits.train)
x_test, y_test = digits.test
x_unknown = digits.ood["held_out_classes"]  # digits 8 and 9


def train(optimizer, seed):
    """Returns a network trained from this seed."""
    keras.utils.set_random_seed(seed)
    model = bdl.Sequential(
        [
            keras.Input(digits.input_shape),
            keras.layers.Conv2D(4 if SMOKE else 16, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(8 if SMOKE else 32, activation="relu"),
            keras.layers.Dense(digits.num_classes),
        ]
    )
    model.compile(
        optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(x, y, epochs=EPOCHS, verbose=0)
    return model


models = {
    "Adam": [train(keras.optimizers.Adam(), seed) for seed in SEEDS],
    "IVON": [train(bdl.IVON(), seed) for seed in SEEDS],
}

# %% [markdown]
# ## A report
#
# `predict` gives a prediction, `evaluate` compares it with the labels. Give it
# images of something else as `ood` (out of distribution), by name:

# %%
model = models["IVON"][0]
p = bdl.predict(model, x_test, verbose=0)
p_unknown = bdl.predict(model, x_unknown, verbose=0)
print(bdl.evaluate(p, y_test, ood={"digits 8 and 9": p_unknown}))

# %% [markdown]
# Start with four of these numbers:
#
# - **nll**, the negative log-likelihood of the true class. It punishes being
#   sure and wrong. If you may look at one number, look at this one.
# - **ece**, the calibration error: the mean distance between confidence and
#   accuracy. 0.02 means that "90 %" is right in about 88 or 92 of 100 cases.
# - **auroc** of the entropy on `ood`: the probability that an unknown image
#   gets more doubt than a known one. 0.5 is chance.
# - **accuracy** of the rest when the most uncertain part of the images is
#   referred to a person.
#
# A report is also an object: `report.nll`, `report["nll"]`, `report.per_class`
# (precision, recall, F1 and calibration of every class), `report.to_dict()`,
# `report.to_frame()` (pandas). [All quantities of a prediction and of a
# report](predictions.md).
#
# ## Pictures

# %%
predictions = {
    name: bdl.predict(of_seeds[0], x_test, verbose=0)
    for name, of_seeds in models.items()
}
unknown = {
    name: bdl.predict(of_seeds[0], x_unknown, verbose=0)
    for name, of_seeds in models.items()
}
figure, axes = plt.subplots(2, 2, figsize=(10, 8), layout="constrained")
bdl.plots.reliability_diagram(predictions, y_test, num_bins=8, ax=axes[0, 0])
bdl.plots.referral_curve(
    predictions, y_test, uncertainty="entropy", ax=axes[0, 1]
)
for ax, name in zip(axes[1], models, strict=True):
    bdl.plots.entropy_histograms(predictions[name], unknown[name], ax=ax)
    ax.set_title(name)

# %% [markdown]
# Top left, *calibration*: points above the line are too sure of themselves. Top
# right, *referral*: the most uncertain images go to a person; a line that rises
# fast belongs to a network that doubts the right images. Below, the entropies
# of known digits and of unknown ones: the less they overlap, the better.
# `bdl.plots.comparison(predictions, y_test, ood=unknown)` draws all of it on
# one page, with a table.
#
# ## Shift: the same digits, seen worse
#
# Test images like those of the training are the easy case. `corrupt` turns,
# moves, blurs, dims, or adds noise to images, with severities from 1 to 5. The
# labels stay. An honest network loses confidence as it loses accuracy, so its
# NLL rises slowly.

# %%
shifted = {
    (kind, severity): bdl.datasets.corrupt(x_test, kind, severity)
    for kind in KINDS
    for severity in SEVERITIES
}


def report(model):
    """Returns a report on known, shifted and unknown images."""
    shift = {kind: {} for kind in KINDS}
    for (kind, severity), images in shifted.items():
        shift[kind][severity] = bdl.predict(model, images, verbose=0)
    return bdl.evaluate(
        bdl.predict(model, x_test, verbose=0),
        y_test,
        ood=bdl.predict(model, x_unknown, verbose=0),
        shift=shift,
    )


reports = {
    name: [report(model) for model in of_seeds]
    for name, of_seeds in models.items()
}
first = {name: of_seeds[0] for name, of_seeds in reports.items()}
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
bdl.plots.shift(first, score="accuracy", ax=axes[0])
bdl.plots.shift(first, score="nll", ax=axes[1])

# %% [markdown]
# `report.shift["blur"]["nll"]` has one number for each severity. For
# photographs, `bdl.datasets.load("cifar10_corrupted/fog_3")` and
# `"imagenet2012_corrupted/fog_3"` are published test images.
#
# ## Could the difference be chance?
#
# `table` puts reports side by side. Standard errors are over the seeds. A
# paired bootstrap over the test images says which differences could be chance.
# A star marks the best method, and each one that may be as good.

# %%
print(bdl.evaluation.table(reports))

# %% [markdown]
# ## Unknown inputs: other scores than entropy
#
# A prediction holds probabilities. Two well-known scores need more: the
# *energy* needs logits, and the *density of the features* needs the layer
# before the last. Both cost one forward pass. Pass the scores of the known and
# of the unknown images as a pair:

# %%
logits = model.predict(x_test, verbose=0)
logits_unknown = model.predict(x_unknown, verbose=0)
energy = bdl.evaluation.energy_score
density = bdl.evaluation.FeatureDensity(model).fit(x, y)
found = bdl.evaluate(
    p,
    y_test,
    ood=p_unknown,
    scores={
        "energy": (energy(logits), energy(logits_unknown)),
        "feature density": (density.score(x_test), density.score(x_unknown)),
    },
)
for score in ("entropy", "mutual_information", "energy", "feature density"):
    print(f"{score:<20} AUROC {found.ood['ood'][score]['auroc']:.3f}")

# %% [markdown]
# `bdl.evaluation.max_logit_score` is a third one. No score is best on all data:
# choose it on unknown inputs that you have, and report it on others.
#
# ## If it is over-confident
#
# A large `ece`, with points above the line in the reliability diagram, means
# over-confidence. *Temperature scaling* fits one number on held-out data. All
# probabilities become softer or sharper, and the most probable class stays:

# %%
held_out, rest = slice(None, 200), slice(200, None)
alone = models["Adam"][0]
on_held_out = bdl.predict(alone, x_test[held_out], verbose=0)
scaling = bdl.prediction.TemperatureScaling()
scaling.fit(on_held_out, y_test[held_out])
on_rest = bdl.predict(alone, x_test[rest], verbose=0)
for name, q in {"before": on_rest, "after": scaling(on_rest)}.items():
    scores = bdl.evaluate(q, y_test[rest])
    print(f"{name:<8} NLL {scores.nll:.3f}, ECE {scores.ece:.3f}")

# %% [markdown]
# A network that is calibrated already gains nothing. `VectorScaling` and
# `IsotonicCalibration` have the same interface and need more held-out data.
# None of them has seen shifted images. A softer network is often less wrong
# there, too ([the table](../../README.md#measured-on-images)), but one number
# serves images of every kind: it cannot tell which of them to doubt.
#
# ## What a report cannot tell
#
# - Every number is about inputs like those of the test. A posterior averages
#   over networks of *this* architecture, trained on *these* data. If all of
#   them share a mistake, they agree on it.
# - Mutual information compares inputs for one model, not two architectures.
# - Labels that are wrong count against the network. Look at the images with the
#   highest loss before you believe the last digit.
#
# To watch calibration while `fit` runs, give `compile` a metric:
# `bdl.metrics.ExpectedCalibrationError(num_bins=20)`. In a plain `keras.Model`
# that returns logits, add `from_logits=True`.
#
# ## What next
#
# - Turn doubt into actions with a guarantee: [decisions](decisions.py).
# - The network is over-confident and trained: [Your trained
#   model](trained_model.py).
# - Which method for my problem: [choose](choose.md).
#
# References: [Guo et al., 2017](https://arxiv.org/abs/1706.04599)
# (calibration), [Ovadia et al., 2019](https://arxiv.org/abs/1906.02530)
# (shift), [Liu et al., 2020](https://arxiv.org/abs/2010.03759) (energy), [Lee
# et al., 2018](https://arxiv.org/abs/1807.03888) (feature density).
