# %% [markdown]
# # Fine-tuning a pretrained network
#
# You have a large pretrained network and forty labelled images. How do you fit
# it to your task and keep track of what those few images leave open? You freeze
# the network, train small adapters (LoRA, low-rank adaptation) with a posterior
# over them, and save a file that is as small as the adapters.

# %%
import importlib.util
import sys
import tempfile
import textwrap
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 2 if SMOKE else 40
RANK = 4

# %% [markdown]
# ## A pretrained network
#
# To run without a download, this guide makes its own: a small network learns
# the digits 0 to 7. In your work, the backbone comes from `keras.applications`
# or from KerasHub, see below. Pretrained transformers normalise their features,
# and so does this network. A posterior over the weights of a layer with large
# inputs starts far too wide: [normalise
# them](gotchas.md#large-inputs-of-a-layer) first.

# %%
keras.utils.set_random_seed(0)
old = bdl.datasets.load("digits", classes=range(8))
new = bdl.datasets.load("digits", classes=(8, 9))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def make_backbone():
    return keras.Sequential(
        [
            keras.Input(old.input_shape),
            keras.layers.Conv2D(8 if SMOKE else 32, 3, activation="relu"),
            keras.layers.Conv2D(8 if SMOKE else 32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.LayerNormalization(),
            keras.layers.Dense(64, activation="relu", name="hidden"),
            keras.layers.LayerNormalization(),
        ]
    )


backbone = make_backbone()
pretraining = keras.Sequential([backbone, keras.layers.Dense(8)])
pretraining.compile("adam", loss)
pretraining.fit(*old.train, epochs=EPOCHS // 2, verbose=0)
pretrained = backbone.get_weights()

# %% [markdown]
# ## Freeze, adapt, train
#
# The new task: tell 8 from 9, with 40 images. The backbone is frozen. `hidden`
# gets an adapter of rank 4, two thin matrices beside its frozen kernel, and a
# new head follows. The posterior covers what is trained, and nothing else.

# %%
x, y = (
    np.concatenate(parts) for parts in zip(new.train, new.test, strict=True)
)
order = np.random.default_rng(0).permutation(len(x))
few, rest = order[:40], order[40:]


def adapted():
    """Returns a frozen copy of the backbone with an adapter and a new head."""
    keras.utils.set_random_seed(0)
    copy = make_backbone()
    copy.set_weights(pretrained)
    copy.trainable = False
    hidden = copy.get_layer("hidden")
    hidden.trainable = True
    hidden.enable_lora(RANK)
    inputs = keras.Input(old.input_shape)
    return bdl.Model(inputs, keras.layers.Dense(2, name="head")(copy(inputs)))


def fit(optimizer):
    model = adapted()
    model.compile(optimizer, loss)
    model.fit(x[few], y[few], batch_size=16, epochs=EPOCHS, verbose=0)
    return model


plain = fit(keras.optimizers.Adam(3e-3))
ivon = fit(bdl.IVON())
trained = sum(int(np.prod(v.shape)) for v in ivon.trainable_variables)
print(f"{trained} of {ivon.count_params()} weights are trained")

# %% [markdown]
# The first training is the usual one, by Adam. There are two ways to a
# posterior. Replace the optimizer, here by `bdl.IVON()`. Or add a posterior to
# the network that Adam has fine-tuned, here by `bdl.fit_laplace`:

# %%
ways = {
    "plain": (plain, None),
    "IVON": (ivon, bdl.posterior_of(ivon)),
    "Laplace, last layer": (
        plain,
        bdl.fit_laplace(plain, (x[few], y[few]), verbose=0),
    ),
}
if not SMOKE:
    vogn = fit(bdl.VOGN())
    ways["VOGN"] = (vogn, bdl.posterior_of(vogn))
    ways["Laplace, adapters"] = (
        plain,
        bdl.fit_laplace(plain, (x[few], y[few]), subset="all", verbose=0),
    )

# %% [markdown]
# `bdl.SWAG` and the samplers collect the trained weights only.
# `bdl.convert(model, {"lora": "mean_field"})` gives the two factors of each
# adapter a distribution; `"head": "mean_field"` adds the head. With
# `subset="all"`, Laplace covers all adapters and the head.
#
# ## What has it learned, and what not?
#
# The test has all other images of 8 and 9, and the digits 0 to 7, which the new
# head has never seen:

# %%
figure, axes = plt.subplots(2, 3, figsize=(10, 5.5), layout="constrained")
for ax in axes.flat[len(ways) :]:
    ax.set_axis_off()
print("                      accuracy     NLL     ECE   unknown, AUROC")
for ax, (name, way) in zip(axes.flat, ways.items(), strict=False):
    model, posterior = way
    p = bdl.predict(model, x[rest], posterior, verbose=0)
    p_old = bdl.predict(model, old.test[0], posterior, verbose=0)
    report = bdl.evaluate(p, y[rest], ood={"0 to 7": p_old})
    auroc = report.ood["0 to 7"]["entropy"]["auroc"]
    print(f"{name:<20}{report.accuracy:10.3f}{report.nll:8.3f}", end="")
    print(f"{report.ece:8.3f}{auroc:17.3f}")
    bdl.plots.entropy_histograms(p, p_old, ax=ax, num_bins=15)
    ax.set_title(name)

# %% [markdown]
# Be careful with the last column. A posterior over adapters knows what forty
# images leave open about 8 and 9. The frozen backbone is sure of the features
# of every image, so the posterior may say little about images of something
# else. Test it on inputs that you fear, and see `FeatureDensity` in [Is it
# honest?](honesty.py#unknown-inputs-other-scores-than-entropy). One run with so
# few images proves little: [means over seeds, with a
# transformer](pretrained.md#measured).
#
# ## A small file
#
# The file of the posterior holds what was trained, and a fingerprint of the
# frozen weights. Together with the pretrained weights, it is all you need. The
# new model is not compiled, so `options` has `task` and `from_logits`. A
# model with other frozen weights raises an error:

# %%
path = Path(tempfile.mkdtemp()) / "adapters.bdl"
bdl.posterior_of(ivon).save(path)
print(f"{path.stat().st_size / 1024:.0f} KiB")
loaded = bdl.posteriors.load(path)
p = bdl.predict(
    adapted(),
    x[rest],
    loaded,
    verbose=0,
    options=bdl.prediction.PredictOptions(
        from_logits=True, task="classification"
    ),
)
print(f"accuracy from the file {(p.predicted_classes == y[rest]).mean():.3f}")

pretrained = [2.0 * weights for weights in pretrained]
try:
    bdl.predict(
        adapted(),
        x[rest],
        loaded,
        verbose=0,
        options=bdl.prediction.PredictOptions(
            from_logits=True, task="classification"
        ),
    )
except ValueError as error:
    print(textwrap.fill(str(error), 72))

# %% [markdown]
# Do not keep a `.keras` file in its place: Keras adds adapters to the kernels
# when it writes one. To serve the network, export a
# [PosteriorPredictive](serving.py#one-program).
#
# ## A backbone of KerasHub
#
# Build the task, call `enable_lora` on its backbone, which also freezes the
# rest of the backbone, and make the task a `keras_bdl.Model`. This network has
# random weights. For pretrained ones, replace `vit` by
# `ViTBackbone.from_preset("vit_base_patch16_224_imagenet")`, and bring your
# images into the form that the preset expects:
# `ViTImageConverter.from_preset` with the same name, of `keras_hub.layers`.

# %%
if importlib.util.find_spec("keras_hub") is None:
    print('KerasHub is missing: python -m pip install "keras-bdl[hub]"')
elif not SMOKE:
    import keras_hub

    vit = keras_hub.models.ViTBackbone(
        image_shape=(8, 8, 1),
        patch_size=(2, 2),
        num_layers=2,
        num_heads=4,
        hidden_dim=32,
        mlp_dim=64,
    )
    task = keras_hub.models.ViTImageClassifier(
        backbone=vit, num_classes=2, preprocessor=None
    )
    vit.enable_lora(RANK)
    transformer = bdl.Model(task.inputs, task.outputs)
    transformer.compile(bdl.IVON(), loss)
    transformer.fit(x[few], y[few], batch_size=16, epochs=5, verbose=0)
    p = bdl.predict(transformer, x[rest], verbose=0)
    print(f"mean mutual information {p.mutual_information.mean():.3f}")

# %% [markdown]
# ## What next
#
# - [The reference page](pretrained.md): every method on every architecture,
#   text and tokens, large batches, files.
# - Forty images decide much: [decisions](decisions.py) shows how to promise
#   something in spite of it.
# - The same with Laplace, step by step: [trained_model](trained_model.py).
