"""Cost of a training step of variational layers, relative to plain layers.

    python examples/benchmarks/layers.py [--smoke] [--torch PYTHON]

Measures steps of `fit`, with Adam on batches of 128, as Keras compiles them by
default. A ratio of 1 is the time of the same network without distributions.
Other libraries are measured against the same plain network in their framework:
TensorFlow Probability under tf_keras, and bayesian-torch, with a training loop
in this file. Both steps of a pair run in turns, so that other work on the
machine slows both; the median of the paired ratios is printed, with a 95 %
interval. Each framework has its own process. bayesian-torch is skipped where it
is not installed; `--torch` names the Python of an environment that has it.
"""

import argparse
import functools
import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from timing import ratio
from timing import show_control

INPUTS = {"MLP": (784,), "CNN": (32, 32, 3)}
# Largest accepted ratios, by estimator.
TARGETS = {
    "MLP": {"weight": 1.4, "local": 1.9, "flipout": 2.0},
    "CNN": {"weight": 1.05, "flipout": 1.8},
}


class Size:
    """Size of the measurement."""

    def __init__(self, smoke):
        self.smoke = smoke
        self.batch_size, self.rounds = (8, 1) if smoke else (128, 40)
        self.steps = {"MLP": 2, "CNN": 1} if smoke else {"MLP": 10, "CNN": 1}

    def data(self, name):
        rng = np.random.default_rng(0)
        examples = self.batch_size * self.steps[name]
        x = rng.normal(size=(examples, *INPUTS[name])).astype("float32")
        return x, rng.integers(0, 10, examples)


def network(layers, name, dense, conv, size):
    """Returns the layers of a network, for Keras or tf_keras."""
    if name == "MLP":
        units = 32 if size.smoke else 400
        hidden = [dense(units, activation="relu") for _ in range(2)]
        last = [dense(10)]
    else:
        hidden = [
            conv(32, 3, padding="same", activation="relu"),
            conv(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            conv(64, 3, padding="same", activation="relu"),
            conv(64, 3, padding="same", activation="relu"),
        ]
        last = [layers.GlobalAveragePooling2D(), dense(10)]
    return (hidden[:1] if size.smoke else hidden) + last


def show(library, layer, estimator, name, value):
    target = ""
    if library == "keras_bdl":
        target = f"at most {TARGETS[name][estimator]}"
    print(
        f"{name:5}{library:24}{layer:12}{estimator:10}{value!s:>22}  {target}",
        flush=True,
    )


def fit_of(keras, model, size, name):
    """Returns a function that trains for an epoch."""
    model.compile(
        keras.optimizers.Adam(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, y = size.data(name)
    return lambda: model.fit(x, y, batch_size=size.batch_size, verbose=0)


def ours(size):
    import keras

    import keras_bdl as bdl

    families = {
        "mean-field": (bdl.layers.MeanFieldDense, bdl.layers.MeanFieldConv2D),
        "Radial": (bdl.layers.RadialDense, bdl.layers.RadialConv2D),
    }
    for name, shape in INPUTS.items():
        parts = network(
            keras.layers, name, keras.layers.Dense, keras.layers.Conv2D, size
        )
        plain = keras.Sequential([keras.Input(shape), *parts])
        theirs = fit_of(keras, plain, size, name)
        if name == "MLP":
            print(f"Keras compiles with XLA here: {plain.jit_compile}\n")
        show_control(theirs, size.rounds)
        for estimator in TARGETS[name]:
            for family, (dense, conv) in families.items():
                if estimator not in dense.estimators:
                    continue
                parts = network(
                    keras.layers,
                    name,
                    functools.partial(dense, estimator=estimator),
                    functools.partial(conv, estimator=estimator),
                    size,
                )
                model = bdl.Sequential([keras.Input(shape), *parts])
                value = ratio(
                    fit_of(keras, model, size, name), theirs, size.rounds
                )
                show("keras_bdl", family, estimator, name, value)


def tfp(size):
    import tensorflow_probability as tfp
    import tf_keras

    layers = tfp.layers
    estimators = {
        "weight": (layers.DenseReparameterization, "Reparameterization"),
        "local": (layers.DenseLocalReparameterization, None),
        "flipout": (layers.DenseFlipout, "Flipout"),
    }

    for name, shape in INPUTS.items():
        parts = network(
            tf_keras.layers,
            name,
            tf_keras.layers.Dense,
            tf_keras.layers.Conv2D,
            size,
        )
        theirs = fit_of(
            tf_keras,
            tf_keras.Sequential([tf_keras.Input(shape), *parts]),
            size,
            name,
        )

        def divergence(q, p, _, n=size.batch_size * size.steps[name]):
            return tfp.distributions.kl_divergence(q, p) / n

        for estimator in TARGETS[name]:
            dense, kind = estimators[estimator]
            conv = kind and getattr(layers, f"Convolution2D{kind}")
            parts = network(
                tf_keras.layers,
                name,
                functools.partial(dense, kernel_divergence_fn=divergence),
                conv
                and functools.partial(conv, kernel_divergence_fn=divergence),
                size,
            )
            model = tf_keras.Sequential([tf_keras.Input(shape), *parts])
            value = ratio(
                fit_of(tf_keras, model, size, name), theirs, size.rounds
            )
            show("TensorFlow Probability", "mean-field", estimator, name, value)


def bayesian_torch(size):
    try:
        import bayesian_torch.layers as layers
        import torch
        from bayesian_torch.models.dnn_to_bnn import get_kl_loss
    except ImportError:
        print("bayesian-torch: not installed, skipped")
        return

    def build(name, dense, conv):
        nn = torch.nn
        if name == "MLP":
            return nn.Sequential(
                dense(784, 400),
                nn.ReLU(),
                dense(400, 400),
                nn.ReLU(),
                dense(400, 10),
            )
        return nn.Sequential(
            conv(3, 32, 3, padding=1),
            nn.ReLU(),
            conv(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            conv(32, 64, 3, padding=1),
            nn.ReLU(),
            conv(64, 64, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            dense(64, 10),
        )

    def epoch_of(model, name, variational):
        x, y = (torch.from_numpy(a) for a in size.data(name))
        if name == "CNN":
            x = x.permute(0, 3, 1, 2).contiguous()
        adam = torch.optim.Adam(model.parameters(), 1e-3)
        loss = torch.nn.CrossEntropyLoss()
        for layer in model.modules():
            if hasattr(layer, "dnn_to_bnn_flag"):
                # Layers return the output alone: the loss computes the KL once.
                layer.dnn_to_bnn_flag = True

        def epoch():
            for start in range(0, len(x), size.batch_size):
                batch = slice(start, start + size.batch_size)
                adam.zero_grad()
                value = loss(model(x[batch]), y[batch])
                if variational:
                    value = value + get_kl_loss(model) / len(x)
                value.backward()
                adam.step()

        return epoch

    kinds = {"weight": "Reparameterization", "flipout": "Flipout"}
    for name in INPUTS:
        plain = build(name, torch.nn.Linear, torch.nn.Conv2d)
        theirs = epoch_of(plain, name, False)
        for estimator, kind in kinds.items():
            model = build(
                name,
                getattr(layers, f"Linear{kind}"),
                getattr(layers, f"Conv2d{kind}"),
            )
            value = ratio(epoch_of(model, name, True), theirs, size.rounds)
            show("bayesian-torch", "mean-field", estimator, name, value)


FRAMEWORKS = {"ours": ours, "tfp": tfp, "torch": bayesian_torch}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--framework", choices=FRAMEWORKS, help="only this one")
    args = parser.parse_args()
    if args.framework:
        FRAMEWORKS[args.framework](Size(args.smoke))
        return

    print(f"{'':5}{'':24}{'':12}{'':10}{'ratio':>22}  target", flush=True)
    for name in FRAMEWORKS:
        command = [args.torch if name == "torch" else sys.executable]
        command += ["-W", "ignore", __file__, "--framework", name]
        subprocess.run(
            command + ["--smoke"] * args.smoke,
            check=True,
            # Layers of TensorFlow Probability run on tf_keras alone.
            env=os.environ
            | ({"TF_USE_LEGACY_KERAS": "1"} if name == "tfp" else {}),
        )


if __name__ == "__main__":
    main()
