# %% [markdown]
# # Segmentation: where in an image does a network not know?
#
# A segmentation network gives each pixel a class. Which pixels can you trust?
# At the end you have maps of the uncertainty, a report on all pixels that needs
# little memory, and a list of images that a person should look at.
#
# The images are made here: bright discs and dark crosses on a grey background,
# with more or less noise. Later, striped triangles appear, which the network
# has never seen.

# %%
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
IMAGES, EPOCHS, SAMPLES = (16, 1, 2) if SMOKE else (300, 20, 20)
SIZE, CLASSES = 32, ("background", "disc", "cross")
UNKNOWN = 255  # the label of triangles


def shapes(number, seed, *, triangles=False):
    """Returns images with two shapes each, and the class of each pixel."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    noise = rng.uniform(0.2, 1.2, (number, 1, 1, 1))
    images = noise * rng.normal(size=(number, SIZE, SIZE, 1))
    labels = np.zeros((number, SIZE, SIZE), "int32")
    for image, label in zip(images, labels, strict=True):
        for second in (False, True):
            radius = rng.uniform(4, 8)
            y, x = rng.uniform(6, SIZE - 6, 2)
            y, x = rows - y, columns - x
            kind = UNKNOWN if triangles and second else rng.integers(1, 3)
            if kind == 1:
                inside, color = y**2 + x**2 < radius**2, 1.0
            elif kind == 2:
                long, short = (
                    np.maximum(abs(y), abs(x)),
                    np.minimum(abs(y), abs(x)),
                )
                inside, color = (long < radius) & (short < 0.4 * radius), -1.0
            else:
                inside = (abs(y) < radius) & (2 * abs(x) < radius - y)
                color = np.where(rows % 4 < 2, 1.0, -1.0)[inside]
            image[inside, 0] += color
            label[inside] = kind
    return images.astype("float32"), labels


train, test = shapes(IMAGES, seed=0), shapes(IMAGES, seed=1)

# %% [markdown]
# ## Train
#
# Any network with a class for each pixel works, and you train it as usual. This
# small U-Net has dropout, so the posterior is free: `MCDropout` leaves dropout
# on when the network predicts.


# %%
def u_net(rate=0.0):
    """Returns a U-Net with two levels; `rate` is that of dropout."""
    layers = keras.layers

    def block(x, filters):
        for _ in range(1 if SMOKE else 2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return layers.Dropout(rate)(x) if rate else x

    inputs = keras.Input((SIZE, SIZE, 1))
    fine = block(inputs, 8)
    coarse = block(layers.MaxPooling2D()(fine), 16)
    coarse = block(layers.MaxPooling2D()(coarse), 32)
    up = layers.UpSampling2D(4)(coarse)
    up = block(layers.Concatenate()([up, fine]), 8)
    return bdl.Model(inputs, layers.Conv2D(len(CLASSES), 1)(up))


keras.utils.set_random_seed(0)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
steps = EPOCHS * -(-IMAGES // 32)
model = u_net(rate=0.1)
rate = keras.optimizers.schedules.CosineDecay(3e-3, steps)
model.compile(keras.optimizers.Adam(rate), loss)
model.fit(*train, epochs=EPOCHS, verbose=0)
posterior = bdl.posteriors.MCDropout()

# %% [markdown]
# ## A report without keeping the predictions
#
# The probabilities of all pixels of a data set rarely fit into memory.
# `SegmentationScores` adds up what the report needs, batch by batch. `on_batch`
# takes any function of a prediction, and memory does not grow with the data.

# %%
batches = tf.data.Dataset.from_tensor_slices(test).batch(32)
scores = bdl.evaluation.SegmentationScores(uncertainty="entropy")
bdl.predict(
    model,
    batches,
    posterior,
    samples=SAMPLES,
    on_batch=scores.add,
    verbose=0,
)
print(scores.report())

# %% [markdown]
# The report has accuracy, IoU (the overlap of a predicted and a true region,
# divided by their union), NLL, Brier score and calibration of the pixels. Its
# referral table answers: if the most uncertain images go to a person, how good
# is the network on the rest? `ignore_class=255` leaves pixels out.
#
# ## Maps
#
# Each row has an image, its labels, the predicted classes and the mutual
# information of each pixel: there, the drawn networks disagree. The triangles
# are no class of the network and stay white.

# %%
images, labels = shapes(IMAGES, seed=2, triangles=True)
maps = bdl.predict(model, images, posterior, samples=SAMPLES, verbose=0)
figure = bdl.plots.segmentation_maps(images, maps, labels, class_names=CLASSES)

# %% [markdown]
# How uncertain are the pixels of each kind?


# %%
def mean_information(maps):
    for name, mask in {
        "triangles": labels == UNKNOWN,
        "known shapes": (labels == 1) | (labels == 2),
        "background": labels == 0,
    }.items():
        print(f"{name:<14}{maps.mutual_information[mask].mean():.4f}")


mean_information(maps)

# %% [markdown]
# The shapes are uncertain, and that is right: where exactly does a noisy disc
# end? But look at the triangles. The network takes them for background, and
# their pixels are less uncertain than those of shapes that it knows. A map of
# mutual information shows where drawn networks disagree, and networks of one
# kind may agree on something that they have never seen. Test your own network
# on images that it cannot know before you rely on its doubt.
#
# ## How much the data count
#
# Methods with a prior weigh the data against it. With
# `compile(..., observations="examples")`, the default, an image counts as one
# observation, with the mean loss of its pixels. With `"positions"`, each pixel
# counts. Pixels of one image are alike, so the posterior is then too narrow; a
# `temperature` above 1 is between the two. We measured both, with one seed and
# the 20 epochs of this guide. A network that always says "background" has an
# accuracy of 0.813:
#
# The rows of IVON have an older default of `initial_curvature`.
#
# | accuracy of the pixels | `"examples"` | `"positions"` |
# |---|---|---|
# | IVON, learning rate 0.05, the default | 0.896 | 0.957 |
# | IVON, learning rate 0.01 | 0.867 | 0.870 |
# | mean-field layers, by `bdl.convert` | 0.957 | 0.958 |
#
# 300 images say too little for IVON. So IVON gets positions here:

# %%
keras.utils.set_random_seed(0)
model = u_net()
rate = keras.optimizers.schedules.CosineDecay(0.05, steps)
model.compile(bdl.IVON(rate), loss, observations="positions")
model.fit(*train, epochs=EPOCHS, verbose=0)
maps = bdl.predict(model, images, samples=SAMPLES, verbose=0)
mean_information(maps)
figure = bdl.plots.segmentation_maps(
    images, maps, labels, class_names=CLASSES, rows=2
)

# %% [markdown]
# IVON puts the doubt at the edges, and it does not notice the triangles either.
#
# ## Next
#
# - [Decisions](decisions.py): sets of pixels that miss at most a given share of
#   a shape, with a guarantee. [Conformal](conformal.md) has it batch by batch.
# - [Honesty](honesty.py): the same questions for whole images.
# - [Measured](../README.md): MC dropout, SWAG and IVON beside each other, made
#   by `python examples/segmentation.py`.
