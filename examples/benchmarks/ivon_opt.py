"""Compares `keras_bdl.IVON` with the package of its authors, `ivon-opt`.

    python examples/benchmarks/ivon_opt.py [--data digits] [--data-dir ...]
        [--seeds 3] [--smoke]

Both train the same network from the same weights with the same settings on the
same images, and predict with the average of as many samples. Only the order of
the images and the noise differ. Prints the negative log-likelihood (NLL) of
each seed, and the ratio of the means. Needs the extra `bench`.
"""

import argparse
import concurrent.futures
import multiprocessing
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

# TensorFlow and PyTorch cannot share a process: each brings an LLVM of its own.
# The functions import what they need.

SETTINGS = {
    "learning_rate": 0.1,
    "prior_precision": 1.0,
    "beta_1": 0.9,
    "beta_2": 0.99999,
}
BATCH, SAMPLES = 64, 30


def images(args):
    """Returns images and labels for training and for the test."""
    import keras

    import keras_bdl as bdl

    data = bdl.datasets.load(
        args.data, classes="all", ood=(), augment=False, data_dir=args.data_dir
    )
    parts = (data.train_eval, data.test)
    if not isinstance(data.train, tuple):
        batches = (zip(*p.as_numpy_iterator(), strict=True) for p in parts)
        parts = [tuple(map(np.concatenate, pair)) for pair in batches]
    (x, y), test = parts
    if args.data == "digits":  # as large as the network expects
        resize = keras.layers.Resizing(28, 28)
        x, test = np.array(resize(x)), (np.array(resize(test[0])), test[1])
    most = 256 if args.smoke else args.train_size
    return (x[:most], y[:most]), test


def initial_curvature(train):
    """Returns the initial curvature for both libraries."""
    return 8 / len(train[0]) ** 0.5


def keras_network(num_classes):
    import keras

    import keras_bdl as bdl

    layers = keras.layers
    return bdl.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(num_classes),
        ]
    )


def torch_network(kernels, num_classes):
    """Returns the same network in PyTorch, with the weights of Keras."""
    import torch
    from torch import nn

    network = nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, num_classes),
    )
    kernels = list(kernels)
    # PyTorch flattens channels first.
    kernels[4] = (
        kernels[4].reshape(4, 4, 32, 128).transpose(2, 0, 1, 3)
    ).reshape(512, 128)
    order = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
    with torch.no_grad():
        for p, w in zip(network.parameters(), kernels, strict=True):
            p.copy_(torch.tensor(w.transpose(order[w.ndim]).copy()))
    return network


def nll_of_ours(model, train, test, epochs, seed):
    import keras
    import tensorflow as tf

    import keras_bdl as bdl

    x, y = train
    steps = epochs * -(-len(x) // BATCH)
    settings = dict(SETTINGS)
    start = initial_curvature(train)
    # `ivon-opt` multiplies its steps by no power of `1 - beta_1`.
    scale = start + SETTINGS["prior_precision"] / len(x)
    rate = keras.optimizers.schedules.CosineDecay(
        scale * settings.pop("learning_rate"), steps
    )
    model.compile(
        bdl.IVON(
            rate,
            initial_curvature=start,
            rescale_learning_rate=False,
            **settings,
            seed=seed,
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=seed)
    model.fit(data.batch(BATCH), epochs=epochs, shuffle=False, verbose=0)
    p = bdl.predict(model, test[0], samples=SAMPLES, verbose=0)
    return bdl.evaluate(p, test[1]).nll


def nll_of_theirs(kernels, train, test, epochs, seed):
    import ivon
    import torch

    torch.manual_seed(seed)
    network = torch_network(kernels, kernels[-1].size)
    x = torch.tensor(train[0].transpose(0, 3, 1, 2).copy())
    y = torch.tensor(train[1].astype("int64"))
    n = len(x)
    batches = -(-n // BATCH)
    optimizer = ivon.IVON(
        network.parameters(),
        lr=SETTINGS["learning_rate"],
        ess=n,
        hess_init=initial_curvature(train),
        weight_decay=SETTINGS["prior_precision"] / n,
        beta1=SETTINGS["beta_1"],
        beta2=SETTINGS["beta_2"],
    )
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, epochs * batches
    )
    for _ in range(epochs):
        order = torch.randperm(n)
        for chosen in order.split(BATCH):
            with optimizer.sampled_params(train=True):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(
                    network(x[chosen]), y[chosen]
                )
                loss.backward()
            optimizer.step()
            rate.step()
    x = torch.tensor(test[0].transpose(0, 3, 1, 2).copy())
    total = 0.0
    with torch.no_grad():
        for _ in range(SAMPLES):
            with optimizer.sampled_params():
                total = total + network(x).softmax(-1).numpy()
    chosen = total[np.arange(len(x)), test[1]] / SAMPLES
    return float(-np.log(chosen).mean())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--data", default="digits", help="digits, mnist or fashion_mnist")
    add("--data-dir", help="folder of TensorFlow Datasets")
    add("--train-size", type=int, help="number of training images")
    add("--epochs", type=int, default=20)
    add("--seeds", type=int, default=3, help="number of repetitions")
    add("--smoke", action="store_true", help="seconds only")
    args = parser.parse_args()

    import keras

    epochs = 1 if args.smoke else args.epochs
    train, test = images(args)
    classes = int(train[1].max()) + 1
    found = []
    print(f"{len(train[0])} images, NLL of {len(test[0])} others")
    print("seed   keras_bdl    ivon-opt")
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as other_process:
        for seed in range(args.seeds):
            keras.utils.set_random_seed(seed)
            model = keras_network(classes)
            run = train, test, epochs, seed
            theirs = other_process.submit(
                nll_of_theirs, model.get_weights(), *run
            ).result()
            found.append((nll_of_ours(model, *run), theirs))
            ours, theirs = found[-1]
            print(f"{seed:4d}{ours:12.4f}{theirs:12.4f}", flush=True)
    ours, theirs = np.mean(found, axis=0)
    print(f"mean{ours:12.4f}{theirs:12.4f}   ratio {ours / theirs:.3f}")


if __name__ == "__main__":
    main()
