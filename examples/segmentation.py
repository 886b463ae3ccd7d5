"""Where in an image does a network not know? Segments discs and crosses.

    python examples/segmentation.py [--smoke] [--out DIR]

The images are made here: bright discs and dark crosses on a grey background,
with more or less noise. A small U-Net learns to find them, with MC dropout,
SWAG and IVON. The script prints a report for each: calibration of the pixels,
and how much better the rest becomes if the most uncertain images are referred
to a person. Striped triangles are unknown to the network. The script writes
pictures of images with triangles beside maps of the mutual information.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib
import numpy as np
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.extend import StoragePath

matplotlib.use("Agg")
SIZE, CLASSES = 32, ("background", "disc", "cross")
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def shapes(number, seed, *, unknown=False):
    """Returns images with two shapes each, and the class of each pixel.

    Args:
        number: Number of images.
        seed: Selects the images.
        unknown: Whether a striped triangle takes the place of the second
            shape. Its pixels have the label 255.
    """
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    noise = rng.uniform(0.2, 1.2, (number, 1, 1, 1))
    images = noise * rng.normal(size=(number, SIZE, SIZE, 1))
    labels = np.zeros((number, SIZE, SIZE), "int32")
    for i in range(number):
        for second in (False, True):
            radius = rng.uniform(4, 8)
            y, x = (
                rows - rng.uniform(6, SIZE - 6),
                columns - rng.uniform(6, SIZE - 6),
            )
            kind = 255 if unknown and second else rng.integers(1, 3)
            long, short = np.maximum(abs(y), abs(x)), np.minimum(abs(y), abs(x))
            if kind == 1:
                inside, color = y**2 + x**2 < radius**2, 1.0
            elif kind == 2:
                inside, color = (long < radius) & (short < 0.4 * radius), -1.0
            else:
                inside = (abs(y) < radius) & (2 * abs(x) < radius - y)
                color = np.where(rows % 4 < 2, 1.0, -1.0)[inside]
            images[i, inside, 0] += color
            labels[i][inside] = kind
    return images.astype("float32"), labels


def u_net(rate=0.0):
    """Returns a U-Net with two levels; `rate` is that of dropout."""
    layers = keras.layers

    def block(x, filters):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return layers.Dropout(rate)(x) if rate else x

    inputs = keras.Input((SIZE, SIZE, 1))
    fine = block(inputs, 8)
    middle = block(layers.MaxPooling2D()(fine), 16)
    coarse = block(layers.MaxPooling2D()(middle), 32)
    up = layers.UpSampling2D()(coarse)
    up = block(layers.Concatenate()([up, middle]), 16)
    up = layers.UpSampling2D()(up)
    up = block(layers.Concatenate()([up, fine]), 8)
    return bdl.Model(inputs, layers.Conv2D(len(CLASSES), 1)(up))


def trained(method, train, epochs):
    """Returns a network and its posterior."""
    keras.utils.set_random_seed(0)
    model = u_net(rate=0.1 if method == "MC dropout" else 0.0)
    steps = epochs * -(-len(train[0]) // 32)

    def cosine(rate):
        return keras.optimizers.schedules.CosineDecay(rate, steps)

    if method == "IVON":
        # Each pixel counts, or the data say little against the prior.
        model.compile(bdl.IVON(cosine(0.05)), LOSS, observations="positions")
    elif method == "SWAG":
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), LOSS)
    else:
        model.compile(keras.optimizers.Adam(cosine(3e-3)), LOSS)
    swag = bdl.SWAG(start_epoch=epochs // 2, rank=5)
    callbacks = [swag] if method == "SWAG" else []
    model.fit(
        *train, batch_size=32, epochs=epochs, callbacks=callbacks, verbose=0
    )
    if method == "MC dropout":
        return model, bdl.posteriors.MCDropout()
    if method == "SWAG":
        return model, swag.posterior
    return model, bdl.posterior_of(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=StoragePath, default="results")
    arguments = parser.parse_args()
    smoke = arguments.smoke
    number, epochs, samples = (16, 2, 2) if smoke else (300, 20, 20)
    train, test = shapes(number, seed=0), shapes(4 * number, seed=1)
    unknown = shapes(number, seed=2, unknown=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for method in ("MC dropout",) if smoke else ("MC dropout", "SWAG", "IVON"):
        model, posterior = trained(method, train, epochs)
        # The test images are read batch by batch, and no prediction is kept.
        scores = bdl.evaluation.SegmentationScores(uncertainty="entropy")
        bdl.predict(
            model,
            tf.data.Dataset.from_tensor_slices(test).batch(32),
            posterior,
            samples=samples,
            on_batch=scores.add,
            verbose=0,
        )
        print(f"\n{method}: {scores.report()}")
        maps = bdl.predict(
            model, unknown[0], posterior, samples=samples, verbose=0
        )
        information = maps.mutual_information
        print("mutual information of the pixels of an image with a triangle")
        for name, mask in (
            ("triangles", unknown[1] == 255),
            ("known shapes", (unknown[1] == 1) | (unknown[1] == 2)),
            ("background", unknown[1] == 0),
        ):
            print(f"  {name:<14}{information[mask].mean():.4f}")
        path = arguments.out / f"segmentation_{method.replace(' ', '_')}.png"
        figure = bdl.plots.segmentation_maps(
            unknown[0],
            maps,
            unknown[1],
            class_names=CLASSES,
        )
        with path.replaced() as file:
            figure.savefig(file, dpi=150)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
