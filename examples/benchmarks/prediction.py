"""Cost of a prediction with 30 posterior samples, in plain forward passes.

    python examples/benchmarks/prediction.py [ROW ...] [--smoke]

Rows are named, such as "last layer"; "PyTorch" is the last table. Without names
all rows run, which takes half an hour. With names, each row takes a minute or
two.

The network has two convolutions and two dense layers. A plain pass is a traced
`model(x, training=False)` on the same batch. Both functions of a pair run in
turns, and the median of the paired ratios is printed, with a 95 % interval.
"predict" is a call of `keras_bdl.predict`, which draws the samples and predicts
with a program that an earlier call has traced. "program" is a
`PosteriorPredictive`, which holds its samples.

With the extra `bench` installed, PyTorch does the same work in plain passes of
its own network: `torch.func.vmap` over an ensemble, and the linearised
predictions of laplace-torch.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# Before TensorFlow: after it, a library that laplace-torch imports ends the
# process.
try:
    import laplace
except ImportError:
    laplace = None

import keras
import numpy as np
import tensorflow as tf
from timing import ratio

import keras_bdl as bdl


def network(dropout=0.0, variational=False):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(dropout),
            layers.Dense(10),
        ]
    )
    if variational:
        model = bdl.convert(model, "mean_field")
    model.compile(
        "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def gaussian(model, last_layer=False):
    """A posterior with all weights or the last two variables uncertain."""
    mean = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    certain = len(mean) - 2 if last_layer else 0
    variance = [
        None if i < certain else np.full(m.shape, 1e-3)
        for i, m in enumerate(mean)
    ]
    return bdl.posteriors.Gaussian(mean, variance)


def ensemble(model, members=30):
    weights = model.get_weights()
    rng = np.random.default_rng(0)
    return bdl.posteriors.Ensemble(
        [
            [
                w + 0.03 * rng.normal(size=w.shape).astype(w.dtype)
                for w in weights
            ]
            for _ in range(members)
        ]
    )


def cases():
    """Yields a name, a model, its posterior and arguments of `predict`."""
    options = bdl.prediction.PredictOptions
    model = network()
    yield "Gaussian", model, gaussian(model), {}
    yield "ensemble", model, ensemble(model), {}
    yield "last layer", model, gaussian(model, last_layer=True), {}
    linear = {"options": options(linearized=True)}
    yield "linearised", model, gaussian(model), linear
    probit = options(linearized=True, link="probit")
    link = {"options": probit, "samples": None}
    yield "last, probit", model, gaussian(model, last_layer=True), link
    link = {"options": options(linearized=True, link="monte_carlo")}
    yield "last, monte_carlo", model, gaussian(model, last_layer=True), link
    variational = network(variational=True)
    posterior = bdl.posteriors.Layerwise(variational)
    yield "mean-field layers", variational, posterior, {}
    dropout = network(dropout=0.5)
    yield "MC dropout", dropout, bdl.posteriors.MCDropout(), {}


def torch_cases(samples):
    """Yields a name and a function of a batch of images; the first is plain."""
    import torch
    from torch import nn

    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)

    def net():
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(512, 128), nn.ReLU()),
            nn.Linear(128, 10),
        ).eval()

    model = net()
    yield "plain", torch.no_grad()(model)
    parameters, _ = torch.func.stack_module_state(
        [net() for _ in range(samples)]
    )

    def of_member(parameters, x):
        return torch.func.functional_call(model, parameters, x)

    averaged = torch.func.vmap(of_member, in_dims=(0, None))
    yield (
        "torch.func.vmap, ensemble",
        torch.no_grad()(lambda x: averaged(parameters, x).softmax(-1).mean(0)),
    )
    rng = np.random.default_rng(0)
    data = torch.utils.data.TensorDataset(
        torch.tensor(rng.random((64, 1, 28, 28), dtype="float32")),
        torch.tensor(rng.integers(0, 10, 64)),
    )
    loader = torch.utils.data.DataLoader(data, 32)
    for subset, structure, link in (
        ("last_layer", "kron", "probit"),
        ("last_layer", "kron", "mc"),
        ("all", "diag", "mc"),
    ):
        posterior = laplace.Laplace(
            model,
            "classification",
            subset_of_weights=subset,
            hessian_structure=structure,
        )
        posterior.fit(loader)

        def predicted(x, posterior=posterior, link=link):
            posterior(x, link_approx=link, n_samples=samples)

        name = f"laplace-torch, {subset}, {structure}, {link}"
        if subset == "all":
            # It keeps the Jacobian of the whole batch.
            name += ", no more than 32 images"
        yield name, predicted


def show_torch(samples, sizes, rounds):
    """Prints what PyTorch needs for the same work."""
    import torch

    name, plain = next(cases := torch_cases(samples))
    print(f"\nPyTorch, in its own {name} passes")
    for name, function in cases:
        for size in sizes:
            if "no more than 32" in name and size > 32:
                continue
            x = torch.rand(size, 1, 28, 28)
            found = ratio(
                lambda x=x, f=function: f(x), lambda x=x: plain(x), rounds
            )
            print(f"{name:66}{size:8}{found!s:>24}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help="names of rows")
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--images", type=int, nargs="+", default=[1, 32, 512])
    parser.add_argument("--rounds", type=int, default=40, help="pairs of times")
    arguments = parser.parse_args()
    smoke, rows = arguments.smoke, arguments.rows
    samples, rounds = (2, 1) if smoke else (30, arguments.rounds)
    sizes = [1] if smoke else arguments.images
    rng = np.random.default_rng(0)
    plain_model = network()
    plain = tf.function(
        lambda x: plain_model(x, training=False), reduce_retracing=True
    )
    print(f"{samples} samples, in plain passes of the same batch")
    print(f"{'':20}{'images':>8}{'program':>24}{'predict':>24}", end="")
    print(f"{'/ Keras predict':>24}{'MiB':>8}")
    for name, model, posterior, options in cases():
        if rows and name not in rows:
            continue
        options = {"samples": samples, **options}
        predictive = bdl.PosteriorPredictive(model, posterior, **options)
        program = tf.function(predictive, reduce_retracing=True)
        mib = sum(w.value.numpy().nbytes for w in predictive.weights) / 2**20
        for size in sizes:
            x = rng.random((size, 28, 28, 1), dtype="float32")
            tensor = tf.constant(x)

            def again(x=x, model=model, posterior=posterior, options=options):
                bdl.predict(
                    model,
                    x,
                    posterior,
                    batch_size=512,
                    verbose=0,
                    **options,
                )

            def of_keras(x=x, model=model):
                model.predict(x, batch_size=512, verbose=0)

            def once(tensor=tensor):
                plain(tensor)

            in_graph = ratio(lambda t=tensor, f=program: f(t), once, rounds)
            few = max(1, rounds // 4)
            called = ratio(again, once, few)
            compared = ratio(again, of_keras, few)
            print(
                f"{name:20}{size:8}{in_graph!s:>24}{called!s:>24}"
                f"{compared!s:>24}{mib:8.1f}",
                flush=True,
            )

    if rows and "PyTorch" not in rows:
        return
    if laplace is None:
        print("\nlaplace-torch: not installed, skipped")
    else:
        show_torch(samples, sizes, max(1, rounds // 4))


if __name__ == "__main__":
    main()
