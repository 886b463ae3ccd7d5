"""Measures the bias of a sampler's variance against the step size.

    python examples/benchmarks/step_size_bias.py [--smoke] [--out PICTURE]

The target is a standard normal. Mass and speed limit are 1, so a step of 1 is
about the time in which a weight crosses the target. The friction is twice the
critical one, which makes the bias large against the noise of the measurement.
Prints a table with standard errors, and draws the biases, with lines of first
and second order through the bias at the largest step.
"""

import argparse
import itertools
import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.extend import StoragePath

CHAINS = 16384
FRICTION = 4.0
STEP_SIZES = (0.4, 0.2, 0.1, 0.05)
MOMENTA = {"Gaussian": None, "hyperbolic": 1.0}
NOISE_VARIANCES = (0.0, 5.0)


def variance_bias(
    sampler, step_size, *, max_speed=None, noise_variance=0.0, weight_steps
):
    """Returns the bias of the variance over many chains, and its error."""
    optimizer = sampler(
        step_size,
        dataset_size=1,
        average_speed=step_size,
        max_speed=max_speed and max_speed * step_size,
        friction=math.exp(-FRICTION * step_size),
        prior=None,
    )
    start = np.random.default_rng(0).normal(size=CHAINS)
    w = keras.Variable(start.astype("float32"))
    optimizer.build([w])

    # Without XLA, which makes the random numbers more slowly on a CPU.
    @tf.function
    def mean_square(seed, steps):
        total = tf.zeros(CHAINS)
        for step in tf.range(steps):
            gradient = w.value
            if noise_variance:
                noise = tf.random.stateless_normal([CHAINS], [seed, step])
                gradient = w + math.sqrt(noise_variance) * noise
            optimizer.apply([gradient], [w])
            total += tf.square(w.value)
        return total / tf.cast(steps, "float32")

    # Passes tensors: a new Python number would be traced again.
    settling, measured = int(20 / step_size), int(weight_steps / CHAINS)
    mean_square(tf.constant(0), tf.constant(settling))  # thermostats settle
    squares = mean_square(tf.constant(1), tf.constant(measured)).numpy()
    squares = squares.astype("float64")
    return squares.mean() - 1, squares.std() / math.sqrt(CHAINS)


def observed_order(coarse, fine):
    """Returns the order of convergence from biases at a step and at half."""
    (a, a_error), (b, b_error) = coarse, fine
    error = math.hypot(a_error / a, b_error / b) / math.log(2)
    return math.log2(a / b), error


def measure(smoke):
    """Prints the table, and returns (bias, error) by sampler and step."""
    print(f"{'':28}{'step':>6}{'bias':>9}{'error':>9}{'order':>14}")
    curves = {}
    for (momentum, max_speed), variance in itertools.product(
        MOMENTA.items(), NOISE_VARIANCES
    ):
        name = f"{momentum}, noise {variance:g}"
        curves[name] = []
        for h in STEP_SIZES[:1] if smoke else STEP_SIZES:
            point = variance_bias(
                bdl.ATMC,
                h,
                max_speed=max_speed,
                noise_variance=variance,
                weight_steps=1e5 if smoke else 2e7 / h,
            )
            order = ""
            if curves[name] and not smoke:
                order = "{:.2f} +- {:.2f}".format(
                    *observed_order(curves[name][-1], point)
                )
            curves[name].append(point)
            print(
                f"{name:28}{h:6g}{point[0]:9.4f}{point[1]:9.4f}{order:>14}",
                flush=True,
            )
    return curves


def draw(curves, path):
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(5.6, 4.2), layout="constrained")
    for i, (name, points) in enumerate(curves.items()):
        h = np.array(STEP_SIZES[: len(points)])
        color = f"C{i // len(NOISE_VARIANCES)}"
        bias, error = np.array(points).T
        if i % len(NOISE_VARIANCES) == 0:
            for order, style in ((1, ":"), (2, "--")):
                ax.plot(
                    h, bias[0] * (h / h[0]) ** order, style, color=color, lw=1
                )
        ax.errorbar(
            h,
            bias,
            yerr=2 * error,
            fmt=".s"[i % 2],
            markerfacecolor="none",  # shows both where they coincide
            markersize=8,
            color=color,
            label=name,
        )
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="step size",
        ylabel="bias of the variance",
        xticks=h,
        xticklabels=[f"{x:g}" for x in h],
    )
    ax.minorticks_off()
    ax.plot([], [], ":", color="grey", label="first order")
    ax.plot([], [], "--", color="grey", label="second order")
    ax.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.replaced() as file:
        figure.savefig(file, dpi=150)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument(
        "--out",
        type=StoragePath,
        default="results/step_size_bias.png",
    )
    args = parser.parse_args()
    draw(measure(args.smoke), args.out)
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
