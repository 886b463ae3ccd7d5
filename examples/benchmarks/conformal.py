"""Compares `keras_bdl.conformal` with MAPIE.

    python examples/benchmarks/conformal.py [--smoke]

Both libraries get the same probabilities, labels and random numbers. Prints on
how many rows the sets differ, and the median of the paired ratios of the times.
Needs the extra `bench`. They differ for:

- APS and RAPS with ties: MAPIE adds all classes as probable as the last one.
- APS and RAPS with zeros: MAPIE never adds classes of probability 0. Its
  coverage is too low if such labels occur.
- False-negative rate: MAPIE compares the thresholds of a grid.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from timing import ratio

from keras_bdl import conformal as cf
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction

SEED = 7


def estimators():
    """Returns classes of estimators that look up their predictions."""
    from sklearn.base import BaseEstimator
    from sklearn.base import ClassifierMixin
    from sklearn.base import RegressorMixin

    class Classifier(ClassifierMixin, BaseEstimator):
        def __init__(self, probs):
            self.probs = probs
            self.classes_ = np.arange(probs.shape[1])

        def fit(self, x, y):
            return self

        def predict_proba(self, x):
            return self.probs[x[:, 0].astype(int)]

        def predict(self, x):
            return self.predict_proba(x).argmax(1)

    class Regressor(RegressorMixin, BaseEstimator):
        def __init__(self, values):
            self.values = values
            self.fitted_ = True

        def fit(self, x, y):
            return self

        def predict(self, x):
            return self.values[x[:, 0].astype(int)]

    return Classifier, Regressor


def classified(n, classes, kind):
    """Returns probabilities and labels; ties are multiples of a number."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(classes, 0.3), n)
    y = (rng.uniform(size=(n, 1)) > probs.cumsum(1)).sum(1)
    if kind:
        probs = rng.multinomial(8, probs) + (kind == "ties")
        probs = probs / probs.sum(1, keepdims=True)
    return probs, np.clip(y, 0, classes - 1)


def compare_sets(name, n, classes, kind, rounds):
    from mapie.classification import SplitConformalClassifier
    from sklearn.model_selection import StratifiedShuffleSplit

    probs, y = classified(2 * n, classes, kind)
    predictions = [
        ClassificationPrediction.from_probabilities(p)
        for p in (probs[:n], probs[n:])
    ]
    # The same floats for both: `mean` is the exponential of a logarithm.
    probs = np.concatenate([p.mean for p in predictions])
    x = np.arange(2 * n)[:, None]
    classifier = estimators()[0](probs)
    raps = name == "raps"
    options = {} if name == "lac" else {"include_last_label": "randomized"}

    def theirs():
        mapie = SplitConformalClassifier(
            classifier,
            confidence_level=0.9,
            conformity_score=name,
            # An instance goes on; an integer starts again in `predict_set`.
            random_state=SEED if raps else np.random.RandomState(SEED),
        )
        mapie.conformalize(x[:n], y[:n])
        sets = mapie.predict_set(x[n:], conformity_score_params=options)[1]
        return mapie._mapie_classifier, sets[..., 0]

    mapie, expected = theirs()
    chosen = np.arange(n)
    if raps:
        score = mapie.conformity_score_function_
        # MAPIE chooses penalty and ranks on some of the rows.
        split = StratifiedShuffleSplit(
            1, test_size=score.size_raps, random_state=SEED
        )
        chosen, _ = next(split.split(x[:n], y[:n]))
        method = cf.RAPS(
            seed=SEED,
            penalty=float(np.ravel(score.lambda_star)[0]),
            free_ranks=int(np.ravel(score.k_star)[0]),
        )
    else:
        method = {"lac": cf.LAC(), "aps": cf.APS(seed=SEED)}[name]
    calibration = ClassificationPrediction(predictions[0].log_mean[chosen])

    def ours():
        method.fit(calibration, y[chosen], coverage=0.9)
        if not raps:
            return method(predictions[1]).membership
        # The random numbers of the calibration, once more, as MAPIE has them.
        cutoffs = np.full(n, method.cutoff.values)
        return method.sets_at(predictions[1], cutoffs).membership

    found = ours()
    rows = np.any(found != expected, axis=1).sum()
    covered = [s[np.arange(n), y[n:]].mean() for s in (found, expected)]
    label = f"{name}{', ' * bool(kind)}{kind}"
    times = ratio(ours, theirs, rounds)
    print(
        f"{label:24}{rows:8} of {n}{covered[0]:12.4f}{covered[1]:10.4f}"
        f"{times:12.2f}"
    )
    if raps:
        cutoff = float(np.ravel(mapie.quantiles_)[0])
        print(f"{'':8}cutoffs {method.cutoff.values:.9f} and {cutoff:.9f}")


def compare_intervals(n, rounds):
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import ConformalizedQuantileRegressor
    from mapie.regression import SplitConformalRegressor
    from scipy.special import ndtri

    rng = np.random.default_rng(1)
    mean, stddev = rng.normal(size=2 * n), rng.uniform(0.5, 2, 2 * n)
    y = mean + stddev * rng.standard_t(4, 2 * n)
    x = np.arange(2 * n)[:, None]
    regressor = estimators()[1]
    calibration, test = (
        RegressionPrediction(mean[part], variance_within=stddev[part] ** 2)
        for part in (slice(0, n), slice(n, 2 * n))
    )

    def normalised():
        mapie = SplitConformalRegressor(
            regressor(mean),
            confidence_level=0.9,
            conformity_score=ResidualNormalisedScore(
                regressor(stddev), prefit=True
            ),
        )
        mapie.conformalize(x[:n], y[:n])
        return mapie.predict_interval(x[n:])[1][..., 0]

    reach = -ndtri(0.05) * stddev
    three = [regressor(v) for v in (mean - reach, mean + reach, mean)]

    def quantiles():
        mapie = ConformalizedQuantileRegressor(
            three, confidence_level=0.9, prefit=True
        )
        mapie.conformalize(x[:n], y[:n])
        found = mapie.predict_interval(x[n:], symmetric_correction=True)
        return found[1][..., 0]

    for name, method, theirs in (
        ("normalised residuals", cf.NormalizedResiduals(), normalised),
        ("quantiles", cf.ConformalizedQuantiles(), quantiles),
    ):

        def ours(method=method):
            method.fit(calibration, y[:n], coverage=0.9)
            found = method(test)
            return np.stack([found.lower, found.upper], 1)

        found, expected = ours(), theirs()
        gap = np.abs(found - expected).max()
        times = ratio(ours, theirs, rounds)
        print(f"{name:24}{gap:17.1e} apart{times:29.2f}")


def compare_risk(n, labels, rounds):
    from mapie.risk_control import MultiLabelClassificationController

    rng = np.random.default_rng(2)
    probs = rng.uniform(size=(2 * n, labels))
    y = rng.uniform(size=probs.shape) < probs
    y[:, 0] = True  # MAPIE wants a label in every row
    pairs = np.stack([1 - probs, probs], -1)
    calibration, test = (
        ClassificationPrediction.from_probabilities(p)
        for p in (pairs[:n], pairs[n:])
    )
    x = np.arange(2 * n)[:, None]
    both = np.concatenate([calibration.mean[..., 1], test.mean[..., 1]])

    def theirs():
        mapie = MultiLabelClassificationController(
            lambda x: both[np.ravel(x).astype(int)],
            target_level=0.9,
        )
        mapie.calibrate(x[:n], y[:n])
        return mapie.predict(x[n:])[..., 0]

    control = cf.RiskControl()

    def ours():
        return control.fit(calibration, y[:n].astype(int))(test).membership

    found, expected = ours(), theirs()
    rows = np.any(found != expected, axis=1).sum()
    rates = [
        ((y[n:] & ~s).sum(1) / y[n:].sum(1)).mean() for s in (found, expected)
    ]
    times = ratio(ours, theirs, rounds)
    print(
        f"{'false-negative rate':24}{rows:8} of {n}{1 - rates[0]:12.4f}"
        f"{1 - rates[1]:10.4f}{times:12.2f}"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    args = parser.parse_args()
    n, rounds = (200, 1) if args.smoke else (3000, 3)
    print(f"{n} calibration rows and {n} others, coverage 0.9")
    print(
        f"{'':24}{'rows that differ':>16}{'coverage':>12}{'MAPIE':>10}", end=""
    )
    print(f"{'time / MAPIE':>14}")
    for name in ("lac", "aps", "raps"):
        for kind in ("", "ties", "ties and zeros"):
            compare_sets(name, n, 20, kind, rounds)
    compare_risk(n, 20, rounds)
    compare_intervals(n, rounds)


if __name__ == "__main__":
    main()
