# %% [markdown]
# # Regression: noise or ignorance?
#
# A network predicts a number. How far off can it be, and would more data help?
# At the end you have a network that predicts its own noise, a posterior that
# grows where data are missing, and a report in the units of your data.
#
# Two things make a prediction uncertain. *Noise* is in the data: measure the
# same thing twice, and the results differ. *Ignorance* is in the network: it
# has seen no data like this. More data remove ignorance, never noise.
#
# This wave has both: noise that grows from left to right, a gap in the middle,
# and no data at the ends.

# %%
import sys

import keras
import numpy as np
import sklearn.datasets
from matplotlib import pyplot as plt
from scipy import stats

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 6 if SMOKE else 60


def wave(x):
    """Returns the true mean and the standard deviation of the noise."""
    return np.sin(2 * x) + x / 3, 0.05 + 0.25 / (1 + np.exp(-2 * x))


def measured(x):
    """Returns inputs and noisy targets of a network."""
    mean, stddev = wave(x)
    y = mean + stddev * rng.normal(size=len(x))
    return x[:, None].astype("float32"), y[:, None].astype("float32")


rng = np.random.default_rng(0)
sides = rng.uniform(-3.0, -0.8, 150), rng.uniform(0.8, 3.0, 150)
x, y = measured(np.concatenate(sides))
grid = np.linspace(-4.5, 4.5, 300)

# %% [markdown]
# ## A network that predicts its noise
#
# A regression needs a *likelihood*: how are the targets spread around the
# prediction? With `Gaussian`, the network returns a mean and a standard
# deviation. Mean squared error has no standard deviation; it implies the same,
# fixed noise everywhere.

# %%
loss = bdl.likelihoods.Gaussian()


def network():
    return bdl.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(50, activation="tanh"),
            keras.layers.Dense(50, activation="tanh"),
            keras.layers.Dense(2, bdl.likelihoods.mean_and_stddev),
        ]
    )


def train(model):
    steps = EPOCHS * -(-len(x) // 16)
    rate = keras.optimizers.schedules.CosineDecay(1e-2, steps)
    model.compile(keras.optimizers.Adam(rate), loss)
    model.fit(x, y, batch_size=16, epochs=EPOCHS, verbose=0)
    return model


keras.utils.set_random_seed(0)
model = train(network())
p = bdl.predict(model, grid[:, None], verbose=0)
ax = bdl.plots.regression_bands(grid, p, x_train=x, y_train=y, truth=wave(grid))

# %% [markdown]
# The network has found the noise: the band is narrow on the left and wide on
# the right, like the dotted lines of the truth. But in the gap and at the ends,
# it is just as sure, and wrong. One network has noise and no ignorance.
#
# ## Add ignorance
#
# Any posterior adds it. Here are three, with the same likelihood: several
# networks; a Gaussian around the trained network (Laplace), which needs no more
# training; and distributions over the weights (mean-field layers), which start
# around the trained network.

# %%
members = [model, *(train(network()) for _ in range(1 if SMOKE else 2))]
variational = bdl.convert(
    model, "mean_field", prior_from_weights=0.3, estimator="local", verbose=0
)
train(variational)
ways = {
    "one network": (model, None),
    "ensemble": (model, bdl.posteriors.Ensemble.from_models(members)),
    "Laplace": (model, bdl.fit_laplace(model, (x, y), subset="all", verbose=0)),
    "mean-field": (variational, None),
}
predictions = {
    name: bdl.predict(net, grid[:, None], posterior, verbose=0)
    for name, (net, posterior) in ways.items()
}
figure = bdl.plots.regression_comparison(
    grid, predictions, x_train=x, y_train=y, truth=wave(grid)
)

# %% [markdown]
# The inner band is ignorance, the outer band adds the noise. `evaluate` scores
# new points. The log-likelihood is high where the truth is likely under the
# prediction, and 95 % of the points should lie in the interval of 95 %:

# %%
places = {
    "in the data": np.concatenate(sides),
    "in the gap": rng.uniform(-0.8, 0.8, 300),
    "outside": rng.uniform(3.0, 4.5, 300),
}
print(f"{'':14}{'log-likelihood':>16}{'95 % covers':>14}{'ignorance':>12}")
for place, inputs in places.items():
    x_new, y_new = measured(inputs)
    print(place)
    for name, (net, posterior) in ways.items():
        p = bdl.predict(net, x_new, posterior, verbose=0)
        r = bdl.evaluate(p, y_new)
        print(
            f"  {name:12}{r.log_likelihood:16.2f}{r.coverage[0.95]:14.2f}"
            f"{r.variance_between**0.5:12.2f}"
        )

# %% [markdown]
# In the gap, every posterior is far better than one network. The first block
# shows what that costs where there are data. `variance_within` is the noise,
# `variance_between` the ignorance, and `variance` their sum.
#
# Outside of the data no network is wide enough: a tanh layer goes flat there,
# and the truth does not. Trust the band between the data, not far away from
# them.
#
# ## Which likelihood?
#
# All three names are in `bdl.likelihoods`:
#
# - The noise is known: `loss=Gaussian(noise_stddev=0.1)`, and the last layer
#   returns the means.
# - The noise is one unknown number for each target: a layer `LearnedStddev()`
#   after the means, and `loss=Gaussian()`.
# - The noise depends on the input: `Dense(2, activation=mean_and_stddev)`, and
#   `loss=Gaussian()`, as above.
#
# `bdl.Model` warns of mean squared error if a method needs a likelihood. After
# squared errors, `p.stddev` leaves out the noise, and warns.
#
# Counts are not Gaussian: use `loss="poisson"` of Keras and a positive output,
# such as `Dense(1, activation="softplus")`. The variance of the noise is then
# the mean.
#
# ## Real data, in their own units
#
# The diabetes data have 10 inputs and one target, the progress of the disease.
# Networks learn best from standardised numbers. `rescaled` returns to the units
# of the data.

# %%
inputs, target = sklearn.datasets.load_diabetes(return_X_y=True, scaled=False)
order = np.random.default_rng(0).permutation(len(target))
inputs, target = inputs[order], target[order, None]
shift, scale = inputs[:350].mean(0), inputs[:350].std(0)
inputs = ((inputs - shift) / scale).astype("float32")
y_shift, y_scale = target[:350].mean(), target[:350].std()
x_train, y_train = inputs[:350], (target[:350] - y_shift) / y_scale
x_test, y_test = inputs[350:], target[350:]

net = bdl.Sequential(
    [
        keras.Input((10,)),
        bdl.layers.MeanFieldDense(50, activation="tanh", estimator="local"),
        bdl.layers.MeanFieldDense(1, estimator="local"),
        bdl.likelihoods.LearnedStddev(),
    ]
)
net.compile(
    keras.optimizers.Adam(1e-2),
    loss=bdl.likelihoods.Gaussian(),
    metrics=[bdl.metrics.RootMeanSquaredError()],
)
net.fit(x_train, y_train, epochs=EPOCHS, verbose=0)
p = bdl.predict(net, x_test, verbose=0).rescaled(y_scale, y_shift)
print(bdl.evaluate(p, y_test))

# %%
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.errorbar(
    p.mean[:, 0], y_test[:, 0], xerr=2 * p.stddev[:, 0], fmt="o", alpha=0.5
)
ax.axline((150, 150), slope=1, color="black")
ax.set(xlabel="predicted, with two standard deviations", ylabel="measured")

# %% [markdown]
# The bars are wide, and most of the variance is noise: ten numbers do not
# decide the progress of a disease. More patients would help little; other
# measurements may. The report also says whether the width is right: an interval
# of 95 % that contains all the points is too wide. A conformal method corrects
# that, see the first link below.
#
# ## When the data change
#
# Say that a clinic measures the body mass index too high, by one to three
# standard deviations. With labels, `shift` scores the changed inputs.
# `FeatureDensity` needs no labels of the new data. It learns how the features
# of each class are spread, and a regression has one class: pass zeros. The
# distances of new patients are then compared with those of usual ones, as in
# [decisions](decisions.py#the-device-is-broken). A p-value below 0.01 is an
# alarm.

# %%
density = bdl.evaluation.FeatureDensity(net)
density.fit(x_train, np.zeros(len(x_train), "int32"))
usual, today = np.split(x_test, 2)
distance = density.score(usual)
changed = []
print("index too high by     distance   p of a change")
for error in range(4):
    offset = np.float32(error) * (np.arange(10) == 2)  # column 2 is the index
    scored = density.score(today + offset)
    noticed = stats.ks_2samp(distance, scored).pvalue
    print(f"{error:17}{scored.mean() / distance.mean():13.1f}{noticed:16.2g}")
    moved = bdl.predict(net, x_test + offset, verbose=0)
    changed.append(moved.rescaled(y_scale, y_shift))
report = bdl.evaluate(p, y_test, shift={"body mass index": changed[1:]})
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
bdl.plots.shift(report, score="rmse", ax=axes[0])
axes[1].plot(range(4), [q.variance_between.mean() ** 0.5 for q in changed])
axes[1].set(xlabel="severity", ylabel="ignorance", ylim=(0, 60))

# %% [markdown]
# The report needs labels, and sees each error. The distances see an error of
# two standard deviations. The ignorance of this posterior hardly grows: do not
# wait for it to warn you.
#
# Use the metrics of `bdl.metrics` with predicted or learned noise. They compare
# targets with the means. Those of Keras would compare targets with the standard
# deviations, too, and are refused.
#
# ## Next
#
# - [Decisions](decisions.py): intervals that contain the truth in 90 % of the
#   cases, with a guarantee, around any of these predictions.
# - [Sampling](sampling.py): chains, the most careful posterior.
# - [Measured](../README.md): nine methods beside a Gaussian process, on the
#   wave and on diabetes, made by `python examples/regression.py`.
