"""Compares noise and uncertain means in regression, method by method.

    python examples/regression.py [--smoke] [--splits 5] [--data diabetes]
        [--out results/regression]

The first data set has one input, so that a picture shows everything: a wave
with a gap in the data and noise that grows with the input. The second is
scikit-learn's diabetes data (or `--data friedman1`) in several random splits,
four fifths for training. The noise has one learned standard deviation, or one
that the network predicts for each input. All methods have the same network,
the same likelihood and the same family of priors; only the posterior differs.
Two methods of scikit-learn serve as reference. Prints tables in the units of
the data, and writes tables, pictures and all numbers to a folder.

No setting was chosen on a test set. The settings of diabetes were chosen on
validation data of friedman1, with other seeds than the reported ones: for each
method the best of three scales of the prior. Diabetes ran with these settings
unchanged. The settings of the wave were chosen on further points inside the
training ranges, never on points in the gap or outside.
"""

import argparse
import functools
import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from regression_experiments import scores
from regression_experiments.data import DATA
from regression_experiments.data import Split
from regression_experiments.data import noisy_wave
from regression_experiments.data import wave
from regression_experiments.methods import METHODS
from regression_experiments.methods import REFERENCES
from regression_experiments.networks import TABLES
from regression_experiments.networks import WAVE
from regression_experiments.networks import Networks

import keras_bdl as bdl
from keras_bdl.extend import StoragePath

# Methods of `--smoke` on splits. With one input, all methods run.
SMOKE = ("linear (scikit-learn)", "deterministic", "mean-field")


def one_input(smoke, advance):
    """Returns the figure of the bands, and the reports by range of x."""
    rng = np.random.default_rng(0)
    train = noisy_wave(rng, (-3.0, -0.8, 150), (0.8, 3.0, 150))
    tests = {
        "in the data": noisy_wave(rng, (-3.0, -0.8, 500), (0.8, 3.0, 500)),
        "in the gap": noisy_wave(rng, (-0.8, 0.8, 1000)),
        "outside": noisy_wave(rng, (-4.5, -3.0, 500), (3.0, 4.5, 500)),
    }
    # Stretches the wave until it varies about as fast as a tanh.
    split = Split(0, train, stretch=3.0)
    nets = Networks(split, "input", WAVE, smoke)
    grid = np.linspace(-4.5, 4.5, 40 if smoke else 300)
    bands, reports = {}, {}
    for where, (x, y) in tests.items():
        mean, stddev = wave(x)
        truth = bdl.prediction.RegressionPrediction(
            mean, variance_within=stddev**2
        )
        reports[where] = {"truth": [scored(truth, y[:, None], 0.0)]}
    name = "GP (scikit-learn)"
    methods = {name: REFERENCES[name], **METHODS}
    for name, train_method in methods.items():
        start = time.perf_counter()
        predict = train_method(nets, split)
        bands[name] = predict(grid[:, None])
        seconds = time.perf_counter() - start
        for where, (x, y) in tests.items():
            reports[where][name] = [scored(predict(x), y, seconds)]
        advance()
    figure = bdl.plots.regression_comparison(
        grid,
        bands,
        x_train=train[0],
        y_train=train[1],
        truth=wave(grid),
        columns=5,
        title="A wave with a gap, and noise that grows with the input",
    )
    return figure, reports


def splits_of(data, noise, splits, smoke, advance):
    """Returns, for each method, a list with one report per split."""
    reports, nets, methods = {}, None, {**REFERENCES, **METHODS}
    if smoke:
        methods = {name: methods[name] for name in SMOKE}
    for seed in range(splits):
        split = DATA[data](seed)
        nets = nets or Networks(split, noise, TABLES, smoke)
        for name, train_method in methods.items():
            start = time.perf_counter()
            prediction = train_method(nets, split)(split.test[0])
            seconds = time.perf_counter() - start
            report = scored(prediction, split.test[1], seconds)
            reports.setdefault(name, []).append(report)
            advance()
    return reports


def scored(prediction, y, seconds):
    return {**bdl.evaluate(prediction, y).to_dict(), "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--splits", type=int, help="default: 5; smoke: 2")
    parser.add_argument("--data", choices=DATA, default="diabetes")
    parser.add_argument("--out", type=StoragePath, default="results/regression")
    args = parser.parse_args()
    splits = args.splits or (2 if args.smoke else 5)
    noises = ("constant",) if args.smoke else ("constant", "input")

    of_split = SMOKE if args.smoke else {**REFERENCES, **METHODS}
    trainings = len(METHODS) + 1 + len(noises) * splits * len(of_split)
    bar = keras.utils.Progbar(trainings, unit_name="method")
    advance = functools.partial(bar.add, 1)
    figure, where = one_input(args.smoke, advance)
    by_noise = {
        noise: splits_of(args.data, noise, splits, args.smoke, advance)
        for noise in noises
    }

    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "bands.png").replaced() as file:
        figure.savefig(file, dpi=150)
    picture = scores.draw(args.data, by_noise)
    with (args.out / "scores.png").replaced() as file:
        picture.savefig(file, dpi=150)
    tables = [
        scores.table(f"One input, {k}", reports) for k, reports in where.items()
    ]
    tables += [
        scores.table(f"{args.data}, {splits} splits, noise: {noise}", reports)
        for noise, reports in by_noise.items()
    ]
    text = "\n\n".join(tables)
    (args.out / "tables.txt").write_text(text + "\n")
    numbers = {"one input": where, args.data: by_noise}
    (args.out / "reports.json").write_text(json.dumps(numbers, indent=1))
    print(f"\n{text}\n")
    print(f"Tables and pictures: {args.out.absolute()}")


if __name__ == "__main__":
    main()
