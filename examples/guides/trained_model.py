# %% [markdown]
# # Your trained model
#
# The network is trained, and you cannot or will not train it again. How do you
# get uncertainty from it? You give a trained network a posterior in seconds
# with `fit_laplace`, and see what this changes on images that are turned.
#
# You need the network, such as a `.keras` file, and its training data. A few
# hundred labelled examples of the same kind will do, too.

# %%
import sys
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 2 if SMOKE else 60

# %% [markdown]
# ## The network
#
# Any Keras model with one output will do. This one comes out of a file, as
# yours may: a plain `keras.Sequential`, trained by Adam on 400 handwritten
# digits.

# %%
keras.utils.set_random_seed(0)
digits = bdl.datasets.load("digits", classes=range(10))
x, y = (part[:400] for part in digits.train)
x_test, y_test = digits.test
trained = keras.Sequential(
    [
        keras.Input(digits.input_shape),
        keras.layers.Conv2D(4 if SMOKE else 16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(4 if SMOKE else 32, activation="relu"),
        keras.layers.Dense(digits.num_classes),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
trained.compile("adam", loss)
trained.fit(x, y, epochs=EPOCHS, verbose=0)
folder = Path(tempfile.mkdtemp())
trained.save(folder / "digits.keras")

# %% [markdown]
# ## Two lines

# %%
model = keras.models.load_model(folder / "digits.keras")
laplace = bdl.fit_laplace(model, (x, y), verbose=0)
p = bdl.predict(model, x_test, posterior=laplace, verbose=0)
print(laplace)

# %% [markdown]
# `fit_laplace` measures how fast the loss rises around the trained weights, and
# puts a Gaussian there: wide where the data say little about a weight, narrow
# where they say much. The network does not change, and the weights at its
# centre are those that you trained. By default, only the last layer gets a
# posterior: a prediction then costs little more than one forward pass.
#
# The loss must be a mean negative log-likelihood: a cross-entropy, or
# `bdl.likelihoods.Gaussian` for a regression.
#
# - **You have only a part of the training data**, or other examples of the same
#   kind: `fit_laplace(..., dataset_size=50_000)` says how many examples the
#   network was trained with. Otherwise the posterior is wider.
# - **The file has no compiled loss, or another one**: pass `loss=` to
#   `fit_laplace`. `predict` then needs `task="classification"` and
#   `from_logits=True` in its `options`, or `False` if the network ends in a
#   softmax.
# - **A regression trained with mean squared error**: it knows nothing of its
#   noise. Measure the standard deviation of its errors on held-out examples,
#   and compile it again, with `bdl.likelihoods.Gaussian(noise_stddev=...)`. The
#   weights stay. Then `fit_laplace` and `predict` use this noise.
# - **Keep some examples for the test**: of 500, give 300 to `fit_laplace` and
#   200 to `evaluate`.
#
# ## What has changed?
#
# A good posterior shows where a network should not be sure. So turn the test
# images by more and more degrees. `evaluate` scores the turned images, too:

# %%
severities = (1, 3, 5)  # 10, 30 and 60 degrees
turned = {s: bdl.datasets.corrupt(x_test, "rotation", s) for s in severities}


def report(posterior, **options):
    """Returns the scores of a posterior on upright and turned digits."""
    options = {"verbose": 0, **options}
    upright = bdl.predict(model, x_test, posterior, **options)
    shift = {
        severity: bdl.predict(model, images, posterior, **options)
        for severity, images in turned.items()
    }
    return bdl.evaluate(upright, y_test, shift={"rotation": shift})


reports = {
    "network alone": report(None),
    "Laplace, last layer": report(laplace),
    "Laplace, probit": report(
        laplace, options=bdl.prediction.PredictOptions(link="probit")
    ),
}
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
bdl.plots.shift(reports, score="accuracy", ax=axes[0])
bdl.plots.shift(reports, score="nll", ax=axes[1])

# %% [markdown]
# The accuracy hardly changes: Laplace rarely changes which class is most
# probable. The probabilities change. The NLL is the negative log-likelihood of
# the true class, and punishes being sure and wrong. On turned digits it rises
# less with the posterior. On upright ones, doubt costs something.
#
# **`link="probit"`** needs no samples. The outputs of a linearised network (see
# below) are exactly Gaussian, and the probit formula turns this Gaussian into
# probabilities. The prediction has no mutual information. With
# `link="monte_carlo"`, which draws the outputs instead of the weights, it has.
# For a regression, `link="identity"` is exact.
#
# ## Why the network is linearised
#
# The Gaussian of Laplace belongs to a network that is linear in its weights. So
# `predict` uses this network: a sample w predicts `f(x, w*) + J (w - w*)`, with
# the trained weights w* and the Jacobian J, the derivative of the outputs by
# the weights. With `linearized=False`, the samples run through the network
# itself. For the last layer, both ways agree, because the network is linear in
# it. For all weights, a wide Gaussian leaves the region where the network is
# nearly linear:


# %%
def fit(**options):
    return bdl.fit_laplace(model, (x, y), verbose=0, **options)


def accuracy(posterior, linearized):
    p = bdl.predict(
        model,
        x_test,
        posterior,
        options=bdl.prediction.PredictOptions(linearized=linearized),
        verbose=0,
    )
    return bdl.evaluate(p, y_test).accuracy


posteriors = {"all weights": fit(subset="all", structure="diagonal")}
if not SMOKE:
    posteriors["all weights, classical"] = fit(
        subset="all",
        structure="diagonal",
        prior_precision="evidence",
        refinements=0,
    )
print("accuracy                   linearised   not linearised")
for name, posterior in posteriors.items():
    print(f"{name:<27}{accuracy(posterior, True):10.3f}", end="")
    print(f"{accuracy(posterior, False):17.3f}")

# %% [markdown]
# "Classical" is the approximation of the textbooks: the curvature at w* alone
# (`refinements=0`). A network that fits its training data predicts
# probabilities near 0 and 1 there, its curvature is close to zero, and the
# Gaussian is too wide. Each refinement, 3 by default, reads the data once more
# and averages the curvature over the posterior.
#
# ## What to change first
#
# "Laplace, last layer" is the default.

# %%
choices = {
    "diagonal": {"structure": "diagonal"},
    "classical": {"refinements": 0},
    "prior precision 100": {"prior_precision": 100.0},
    "one prior per layer": {"prior_precision": "evidence_per_layer"},
    "all weights": {"subset": "all"},
}
for name in ("diagonal",) if SMOKE else choices:
    reports[name] = report(fit(**choices[name]))
print("                         NLL   turned by 30   by 60 degrees")
for name, found in reports.items():
    _, by_30, by_60 = found.shift["rotation"]["nll"]
    print(f"{name:<20}{found.nll:8.3f}{by_30:15.3f}{by_60:16.3f}")

# %% [markdown]
# - **`subset="all"`** makes all layers Bayesian. A sample then costs up to two
#   forward passes. Use it when the features themselves may be wrong.
# - **`prior_precision`**: a large number trusts the trained weights, a small
#   one gives wide posteriors. The default chooses it by the evidence for the
#   last layer, and by the size of the weights for all layers. `"validation"`
#   chooses it on held-out `validation_data`. A network that was trained with an
#   `L2(c)` regularizer has the precision `2 * c * N`, with N training examples.
# - **`structure`**: `"kronecker"` keeps correlations within a layer,
#   `"diagonal"` needs less memory.
#
# [All settings of Laplace](laplace.md), with measurements on MNIST.
#
# ## If calibrated probabilities are enough
#
# One number, fitted on held-out data, makes all probabilities sharper or
# softer. The most probable class stays. This costs nothing:

# %%
held_out, rest = slice(None, 300), slice(300, None)
alone = bdl.predict(model, x_test[held_out], verbose=0)
scaling = bdl.prediction.TemperatureScaling().fit(alone, y_test[held_out])
print(scaling)
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, images, title in (
    (axes[0], x_test, "upright"),
    (axes[1], turned[3], "turned by 30 degrees"),
):
    p = bdl.predict(model, images[rest], verbose=0)
    q = bdl.predict(model, images[rest], laplace, verbose=0)
    compared = {"network alone": p, "scaled": scaling(p), "Laplace": q}
    bdl.plots.reliability_diagram(compared, y_test[rest], num_bins=8, ax=ax)
    ax.set_title(title)

# %% [markdown]
# Points above the line are too sure, points below it not sure enough. The
# number fits the data that it saw, and turned digits may need another one.
# `VectorScaling` has a scale and an offset for each class,
# `IsotonicCalibration` an increasing function for each class; both need more
# held-out data. A scaled prediction is one distribution: it has no mutual
# information, and cannot say what the network has not learned.
#
# ## What next
#
# - Save the posterior, and load it beside the network:
#   `laplace.save("laplace.bdl")`, `bdl.posteriors.load("laplace.bdl")`. Serve
#   both: [serving](serving.py).
# - Test it properly: [honesty](honesty.py).
# - Sets that hold the truth in 95 % of the cases: [decisions](decisions.py).
# - The network is a large pretrained one: [fine_tuning](fine_tuning.py).
#
# References: [Ritter et al., 2018](https://openreview.net/forum?id=Skdvd2xAZ),
# [MacKay, 1992](https://doi.org/10.1162/neco.1992.4.3.448), [Opper and
# Archambeau, 2009](https://doi.org/10.1162/neco.2008.08-07-592), [Guo et al.,
# 2017](https://arxiv.org/abs/1706.04599) (temperature scaling).
