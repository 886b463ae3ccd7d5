# %% [markdown]
# # Decisions with guarantees
#
# A probability is no decision. Which answers can a network give alone, which
# ones go to a person, and what can you promise about them? At the end you have
# sets of diagnoses that hold the truth in nine of ten cases, a rule for
# referral, and an alarm for data that have changed.
#
# The promise holds for any model, good or bad. It needs held-out examples with
# labels, and new data of the same kind. The method is called *conformal
# prediction*.

# %%
import sys
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats
from sklearn import datasets
from sklearn import preprocessing

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 5 if SMOKE else 40

# %% [markdown]
# ## Three parts of the data
#
# 569 patients with a tumour, benign or malignant, from scikit-learn. 200 are
# for training. 170 are *held out*: the guarantee is computed from them, and
# nothing else may touch them. The rest plays the future.

# %%
keras.utils.set_random_seed(0)
data = datasets.load_breast_cancer()
order = np.random.default_rng(0).permutation(len(data.data))
train, held_out, test = np.split(order, [200, 370])
scaler = preprocessing.StandardScaler().fit(data.data[train])


def patients(rows, drift=1.0):
    """Returns inputs and labels; `drift` multiplies the mean radius."""
    x = data.data[rows] * np.where(
        data.feature_names == "mean radius", drift, 1
    )
    return scaler.transform(x).astype("float32"), data.target[rows]


x, y = patients(train)
x_held_out, y_held_out = patients(held_out)
x_test, y_test = patients(test)
model = bdl.Sequential(
    [
        keras.Input((30,)),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(2),
    ]
)
model.compile(
    "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
model.fit(x, y, epochs=EPOCHS, batch_size=16, verbose=0)
posterior = bdl.fit_laplace(model, (x, y), verbose=0)


def predict(x):
    return bdl.predict(model, x, posterior, verbose=0)


# %% [markdown]
# ## Sets in place of one answer
#
# `LAC` finds a threshold. A set has all classes with a probability above the
# threshold, and holds the truth in nine of ten held-out cases.
# `per_class=True` finds one threshold for each class, so that the rare class
# has the same promise as the common one. For sets that hold the truth in 95 %
# of the cases, write `coverage=0.95`.

# %%
conformal = bdl.conformal.LAC(per_class=True)
conformal.fit(predict(x_held_out), y_held_out, coverage=0.9)
sets = conformal(predict(x_test))
print(sets.evaluate(y_test))
print("\nthe first patients:")
for classes in (sets[i] for i in range(4)):
    print("  ", [str(data.target_names[c]) for c in classes])

# %% [markdown]
# The *coverage* is the share of the sets that contain the truth. It is close to
# what you asked for, and not equal to it: the test is finite, and so are the
# held-out data. The last column says where the coverage of each class is
# expected in 95 % of the cases, by [the exact
# law](conformal.md#what-is-guaranteed). A coverage outside suggests that the
# new data are not like the held-out data.
#
# ## From sets to a rule
#
# A set with exactly one diagnosis is an answer. A set with two says "one of
# these", an empty one says "none is probable enough". Both go to a doctor.

# %%
alone = sets.sizes == 1
right = sets.contains(y_test)[alone]
print(f"one diagnosis: {alone.sum()} patients, right for {right.mean():.1%}")
print(f"to a doctor:   {(~alone).sum()} patients")
bdl.plots.prediction_sets(sets, y_test)

# %% [markdown]
# The bars show how large the sets are, the points how often sets of that size
# hold the truth. For images of many classes, `APS` keeps the coverage more
# equal between easy and hard inputs. `RAPS` also makes the largest sets
# smaller. With ten classes and small sets, as here, it equals `APS`:

# %%
digits, digit = datasets.load_digits(return_X_y=True)
shuffled = np.random.default_rng(0).permutation(len(digit))  # not by writer
digits, digit = digits[shuffled].astype("float32") / 16, digit[shuffled]
network = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
network.compile(
    keras.optimizers.Adam(0.01),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
network.fit(digits[:300], digit[:300], epochs=EPOCHS // 4, verbose=0)
on_held_out, on_new = (
    bdl.predict(network, digits[rows], verbose=0)
    for rows in (slice(300, 1000), slice(1000, None))
)
for method in (bdl.conformal.LAC(), bdl.conformal.APS(), bdl.conformal.RAPS()):
    method.fit(on_held_out, digit[300:1000], coverage=0.95)
    found = method(on_new).evaluate(digit[1000:])
    lowest = min(group["coverage"] for group in found.by_group.values())
    print(f"{type(method).__name__:<5} coverage {found.coverage:.3f}, ", end="")
    print(f"mean size {found.mean_size:.2f}, lowest of a digit {lowest:.3f}")

# %% [markdown]
# "Lowest of a digit" is a warning: the promise is for all inputs together. For
# each class by itself, use `per_class=True`.
#
# ## The device is broken
#
# The promise holds for data of the same kind. Now a device measures the radius
# too large. Which number notices? Not the entropy: the network is sure of
# itself. The distance of the features from those of the training notices, and
# it needs no label. The features are the outputs of the layer before the last.
# A statistical test (Kolmogorov and Smirnov) compares the distances of new
# patients with those of held-out ones. A p-value below 0.01 is an alarm. If
# nothing has changed, the alarm rings in one case of a hundred:

# %%
density = bdl.evaluation.FeatureDensity(model).fit(x, y)
usual = density.score(x_held_out)
drifts, rows = (1.0, 1.1, 1.25, 1.5), []
print("mean radius   accuracy  coverage  entropy  distance   p of a drift")
for drift in drifts:
    x_new, y_new = patients(test, drift)
    p, distance = predict(x_new), density.score(x_new)
    accuracy = np.mean(p.predicted_classes == y_new)
    coverage = conformal(p).contains(y_new).mean()
    noticed = stats.ks_2samp(usual, distance).pvalue  # without labels
    rows.append((accuracy, coverage, distance.mean() / usual.mean()))
    print(
        f"times {drift:<8}{accuracy:8.3f}{coverage:10.3f}"
        f"{p.entropy.mean():9.3f}{distance.mean():10.1f}{noticed:15.2g}"
    )
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
accuracies, coverages, distances = zip(*rows, strict=True)
left.plot(drifts, accuracies, "o-", label="accuracy")
left.plot(drifts, coverages, "s-", label="coverage")
left.axhline(0.9, color="0.2", linestyle="--", linewidth=1)
left.set(xlabel="radius, times", ylim=(0.5, 1.02))
left.legend(frameon=False)
right.plot(drifts, distances, "o-")
right.set(xlabel="radius, times", ylabel="distance / usual distance")
figure.tight_layout()

# %% [markdown]
# The images of a new scanner are the same case: compare their distances with
# those of held-out images of the old one. To judge one input instead of a
# group, compare with a quantile: `distance > np.quantile(usual, 0.99)`.
#
# If labels arrive later, let the threshold of the sets follow them.
# `AdaptiveConformal` makes sets larger after each miss, and smaller after each
# hit. Whatever the data do, the share of misses in T steps differs from what
# you asked for by at most `bound()`. This is a statement on the whole series:

# %%
adaptive = bdl.conformal.AdaptiveConformal(bdl.conformal.LAC(), step_size=0.02)
adaptive.fit(predict(x_held_out), y_held_out, coverage=0.9)
today, labels = patients(test, 1.5)
followed = adaptive.update(predict(today), labels)  # each set before its label
fixed = bdl.conformal.LAC().fit(predict(x_held_out), y_held_out, coverage=0.9)
for name, found in {
    "fixed": fixed(predict(today)),
    "follows": followed,
}.items():
    print(f"{name:<8} coverage {found.contains(labels).mean():.3f}")
print(f"after {len(labels)} steps, at most {adaptive.bound():.2f} from 0.9")

# %% [markdown]
# ## Intervals of a regression
#
# `NormalizedResiduals` stretches the predicted standard deviation until the
# intervals keep the promise. `ConformalizedQuantiles` starts from two quantiles
# of the prediction. These numbers are made here: one half is noisier than the
# other, and the prediction of their noise is three times too small.

# %%
rng = np.random.default_rng(0)
mean = rng.uniform(-2, 2, 600)
noise = 0.2 + 0.3 * (mean > 0)
target = mean + noise * rng.normal(size=600)
first, second = (
    bdl.prediction.RegressionPrediction(
        mean[rows], variance_within=noise[rows] ** 2 / 9
    )
    for rows in (slice(300), slice(300, None))
)
residuals = bdl.conformal.NormalizedResiduals()
residuals.fit(first, target[:300], coverage=0.9)
intervals = residuals(second)
print(intervals.evaluate(target[300:]))
print(f"first interval: {intervals.lower[0]:.2f} to {intervals.upper[0]:.2f}")

# %% [markdown]
# With several targets, the coverage holds for each; `joint=True` makes it hold
# for all of them together.
#
# A network trained with mean squared error predicts no standard deviation.
# `bdl.conformal.NormalizedResiduals(normalized=False)` gives all its intervals
# one width, with the same guarantee.
#
# ## Other losses than a miss
#
# `RiskControl` bounds the mean of a loss, for several labels per example and
# for the pixels of a mask: for example the share of the true pixels that the
# mask leaves out.

# %%
truth = rng.uniform(size=(400, 8, 8)) < 0.3  # masks of 8 x 8 pixels
chance = np.clip(0.3 * truth + 0.6 * rng.uniform(size=truth.shape), 0.01, 0.99)
probabilities = np.stack([1 - chance, chance], axis=-1)
truth = truth.astype("int32")
known, new = (
    bdl.prediction.ClassificationPrediction.from_probabilities(part)
    for part in np.split(probabilities, 2)
)
control = bdl.conformal.RiskControl("false_negative_rate")
control.fit(known, truth[:200], risk=0.1)
print(control(new).evaluate(truth[200:]))

# %% [markdown]
# ## Save it
#
# A fitted method is a small file. For a server, `ConformalLayer` puts the sets
# into the Keras model, beside the probabilities: [an example](conformal.md).

# %%
path = Path(tempfile.mkdtemp()) / "sets.bdl"
conformal.save(path)
again = bdl.conformal.load(path)
print(np.array_equal(again(predict(x_test)).sizes, sets.sizes))

# %% [markdown]
# ## What next
#
# - [What exactly is guaranteed](conformal.md), how many labels it needs, and
#   which method fits.
# - Put the model and its sets behind a server: [serving](serving.py).
# - The probabilities themselves are poor: [honesty](honesty.py). Sets of a poor
#   model keep the promise by being large.
#
# References: [Angelopoulos and Bates, 2021](https://arxiv.org/abs/2107.07511)
# is an introduction; the docstrings name the paper of each method.
