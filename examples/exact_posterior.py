"""Compares samplers with exact samples of the same posterior.

    python examples/exact_posterior.py [--data digits cancer wine]
        [--gains 8] [--splits 3] [--smoke] [--out results/exact_posterior]

The posterior is that of the dense network of `small_data.py`, for each gain of
the prior `HeNormal`. Hamiltonian Monte Carlo (HMC) of TensorFlow Probability
samples it with all examples: four chains, whose proposals are accepted or not.
The samplers use batches, and the settings of `compare.py`.

Prints means over random splits, with standard errors, of

- the NLL of the other examples,
- the agreement: how often a method and HMC predict the same class,
- the distance: half the sum of the absolute differences between the
  probabilities of a method and those of HMC.

A method is compared with three chains of HMC, in turn without each of the four.
"HMC, 15 samples" are the samples of the chain that is left out, as many as a
sampler has. R-hat compares the chains: it is near 1 if they have the same
distribution. Each probability has one, and 99 % of them are below the number.
"""

import argparse
import functools
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import small_data
import tensorflow as tf
from comparison.methods import sampling

import keras_bdl as bdl
from keras_bdl.extend import StoragePath

SAMPLERS = {"ATMC": bdl.ATMC, "SGNHT": bdl.SGNHT, "SGHMC": bdl.SGHMC}
CHAINS = 4
SAMPLES = 60  # of each chain of HMC
FEW = 15  # samples of a sampler
COLUMNS = ("NLL", "agreement", "distance")
WIDTH = 15


class Posterior:
    """The exact posterior of a dense network with two hidden layers.

    All functions take the weights of many networks as the rows of a matrix.
    The weights are in units of their standard deviation under the prior, which
    suits HMC.

    Args:
        training: The `DenseTraining`.
        prior: The `HeNormal` prior of the weights.
    """

    def __init__(self, training, prior):
        self.x, self.y = training.task.train
        variables = training.start().trainable_variables
        self.shapes = [tuple(v.shape) for v in variables]
        self.sizes = [int(np.prod(shape)) for shape in self.shapes]
        self.stddevs = [prior.of_shape(shape).stddev for shape in self.shapes]

    def logits(self, z, x):
        """Returns the logits of each network for the examples `x`."""
        parts = zip(
            tf.split(z, self.sizes, axis=1),
            self.shapes,
            self.stddevs,
            strict=True,
        )
        weights = [tf.reshape(s * w, [-1, *shape]) for w, shape, s in parts]
        h = tf.convert_to_tensor(x)[None]
        for i in range(0, len(weights), 2):
            h = tf.nn.relu(h) if i else h
            h = tf.matmul(h, weights[i]) + weights[i + 1][:, None]
        return h

    def log_prob(self, z):
        """Returns the log density of each network, without its constant."""
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.repeat(self.y[None], z.shape[0], axis=0), self.logits(z, self.x)
        )
        return -tf.reduce_sum(loss, 1) - tf.reduce_sum(tf.square(z), 1) / 2

    def sample(self, *, steps, leapfrogs):
        """Returns samples of all chains, an array (samples, chains, weights).

        Args:
            steps: Number of proposals of each chain. The burn-in has the same
                number.
            leapfrogs: Steps of integration for each proposal.
        """
        from tensorflow_probability import mcmc

        kernel = mcmc.DualAveragingStepSizeAdaptation(
            mcmc.HamiltonianMonteCarlo(self.log_prob, 0.01, leapfrogs),
            num_adaptation_steps=int(0.8 * steps),
            target_accept_prob=0.8,
        )

        @tf.function(jit_compile=True)
        def run(start):
            return mcmc.sample_chain(
                SAMPLES,
                start,
                kernel=kernel,
                num_burnin_steps=steps,
                num_steps_between_results=steps // SAMPLES - 1,
                trace_fn=lambda _, k: k.inner_results.is_accepted,
                seed=(0, 1),
            )

        rng = np.random.default_rng(0)
        start = 0.3 * rng.normal(size=(CHAINS, sum(self.sizes)))
        z, accepted = run(tf.constant(start, "float32"))
        share = tf.reduce_mean(tf.cast(accepted, "float32"))
        print(f"{float(share):.0%} of the proposals accepted")
        return z

    def probabilities(self, z, x):
        """Returns the probabilities of each network for the examples `x`.

        Args:
            z: Weights, an array (samples, chains, weights).
            x: The examples.

        Returns:
            An array (samples, chains, examples, classes).
        """
        found = [tf.nn.softmax(self.logits(chains, x)) for chains in z]
        return tf.stack(found).numpy()


def compared(p, references, y):
    """Returns the NLL, the agreement and the distance of a method.

    Args:
        p: For each of the references, the probabilities of the method.
        references: Probabilities of HMC.
        y: Labels.
    """
    found = []
    for own, exact in zip(p, references, strict=True):
        agreement = (own.argmax(1) == exact.argmax(1)).mean()
        distance = np.abs(own - exact).sum(1).mean() / 2
        found.append((nll(own, y), agreement, distance))
    return np.mean(found, 0).tolist()


def nll(p, y):
    """Returns the negative log-likelihood of labels `y`."""
    return float(-np.log(p[np.arange(len(y)), y]).mean())


def one_split(name, gain, seed, smoke):
    """Returns the numbers of each method on one split, as a dict."""
    from tensorflow_probability import mcmc

    budget = small_data.SMOKE if smoke else small_data.BUDGET
    task = small_data.task(name, seed)
    training = small_data.DenseTraining(task, budget, seed)
    x, y = task.test
    prior = bdl.priors.HeNormal(gain)
    posterior = Posterior(training, prior)
    print(f"{name}, gain {gain:g}, split {seed}: HMC")
    z = posterior.sample(
        steps=SAMPLES if smoke else 300, leapfrogs=5 if smoke else 100
    )
    p = posterior.probabilities(z, x)
    r_hat = mcmc.potential_scale_reduction(p, split_chains=True).numpy()
    # Probabilities that round to zero in all samples have none.
    highest = float(np.nanquantile(r_hat, 0.99))
    print(f"99 % of R-hat below {highest:.3f}")
    references = [np.delete(p, c, 1).mean((0, 1)) for c in range(CHAINS)]
    few = [p[:: SAMPLES // FEW, c].mean(0) for c in range(CHAINS)]
    found = {
        "HMC": [nll(p.mean((0, 1)), y)],
        f"HMC, {FEW} samples": compared(few, references, y),
    }
    for method, sampler in SAMPLERS.items():
        print(f"{name}, gain {gain:g}, split {seed}: {method}")
        sampler = functools.partial(sampler, prior=prior)
        own = sampling(training, sampler)(x).mean
        found[method] = compared([own] * CHAINS, references, y)
    return found | {"R-hat of HMC": [highest]}


def table(found):
    """Returns a table with a row for each method.

    Args:
        found: A dict from (data set, gain) to a list of results of `one_split`.
    """
    lines = []
    for (name, gain), runs in found.items():
        title = f"{name}, gain {gain:g}".ljust(24)
        lines.append(title + "".join(c.rjust(WIDTH) for c in COLUMNS))
        for method in runs[0]:
            values = np.array([run[method] for run in runs])
            cells = "".join(
                f"{mean:.3f}({error:.3f})".rjust(WIDTH)
                for mean, error in map(small_data.mean_and_error, values.T)
            )
            lines.append(f"  {method}".ljust(24) + cells)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    names = ("digits", "cancer", "wine")
    add("--data", nargs="+", choices=names, default=names)
    add("--gains", nargs="+", type=float, default=[8.0])
    add("--splits", type=int, default=3, help="number of random splits")
    add("--smoke", action="store_true", help="seconds only")
    add(
        "--out",
        type=StoragePath,
        default="results/exact_posterior",
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in args.data:
        for gain in args.gains:
            for seed in range(args.splits):
                run = one_split(name, gain, seed, args.smoke)
                found.setdefault((name, gain), []).append(run)
                # A run that is stopped keeps the splits that it finished.
                (args.out / "table.txt").write_text(table(found) + "\n")
    numbers = {f"{n}, gain {g:g}": runs for (n, g), runs in found.items()}
    (args.out / "numbers.json").write_text(json.dumps(numbers, indent=1))
    print(f"\n{table(found)}\n\nTable and numbers: {args.out.absolute()}")


if __name__ == "__main__":
    main()
