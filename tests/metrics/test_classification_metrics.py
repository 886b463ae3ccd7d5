import keras
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from keras_bdl import metrics
from keras_bdl.metrics._calibration_errors import CELLS_PER_OCTAVE
from tests.helpers import check_config
from tests.helpers import cross_entropy

SCORES = [
    metrics.NegativeLogLikelihood,
    metrics.BrierScore,
    metrics.PredictiveEntropy,
    metrics.ExpectedCalibrationError,
    metrics.MaximumCalibrationError,
]
BINNED = SCORES[3:]


def softmax(logits):
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def make_data(n=200, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, classes)).astype("float32")
    return rng.integers(classes, size=n), logits, rng.uniform(0.1, 2.0, size=n)


def value(metric, *args, **kwargs):
    metric.update_state(*args, **kwargs)
    return float(metric.result())


@pytest.mark.parametrize("cls", SCORES)
def test_config(cls):
    kwargs = {"from_logits": True, "name": "other", "dtype": "float64"}
    if cls in BINNED:
        kwargs |= {"num_bins": 7, "binning": "mass"}
    check_config(cls, **kwargs)


def test_means_agree_with_scikit_learn_and_scipy():
    y, logits, weight = make_data()
    p = softmax(logits.astype("float64"))
    expected = {
        metrics.NegativeLogLikelihood: sklearn.metrics.log_loss(
            y, p, sample_weight=weight
        ),
        metrics.BrierScore: sklearn.metrics.brier_score_loss(
            y, p, sample_weight=weight, labels=range(4), scale_by_half=False
        ),
        metrics.PredictiveEntropy: np.average(
            scipy.stats.entropy(p, axis=-1), weights=weight
        ),
    }
    for cls, number in expected.items():
        actual = value(cls(from_logits=True), y, logits, sample_weight=weight)
        np.testing.assert_allclose(actual, number, rtol=1e-5)


def test_calibration_errors_by_hand():
    # Two bins on [0, 1]. Confidences .4 (right) and .45 (wrong) fall in the
    # first: |.425 - .5| = .075. 1.0 (right) and .7 (wrong) fall in the second,
    # the closed one: |.85 - .5| = .35.
    p = np.array(
        [[0.4, 0.3, 0.3], [0.45, 0.4, 0.15], [1.0, 0.0, 0.0], [0.7, 0.2, 0.1]]
    )
    y = [0, 1, 0, 2]
    ece = value(
        metrics.ExpectedCalibrationError(num_bins=2, from_logits=False), y, p
    )
    mce = value(
        metrics.MaximumCalibrationError(num_bins=2, from_logits=False), y, p
    )
    np.testing.assert_allclose(ece, 0.5 * 0.075 + 0.5 * 0.35, rtol=1e-6)
    np.testing.assert_allclose(mce, 0.35, rtol=1e-6)


def test_empty_bins_change_nothing():
    # Every confidence is .7 and every bin but one is empty.
    p, y = np.tile([0.7, 0.3], (10, 1)), [0] * 5 + [1] * 5
    for cls in BINNED:
        for binning in ("width", "mass"):
            actual = value(
                cls(num_bins=1000, binning=binning, from_logits=False), y, p
            )
            np.testing.assert_allclose(actual, 0.2, rtol=1e-5)


def test_equal_mass_bins_hold_equally_many_examples():
    # Eight distinct confidences in bins of two, in the order of confidence.
    c = np.array([0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0])
    right = np.array([1, 0, 0, 0, 1, 1, 0, 1])
    gaps = np.abs((c - right).reshape(4, 2).mean(1))
    order = np.random.default_rng(0).permutation(8)
    p = np.stack([c, 1 - c], axis=-1)[order]
    kwargs = {"num_bins": 4, "binning": "mass", "from_logits": False}
    ece = value(metrics.ExpectedCalibrationError(**kwargs), 1 - right[order], p)
    mce = value(metrics.MaximumCalibrationError(**kwargs), 1 - right[order], p)
    np.testing.assert_allclose(ece, gaps.mean(), rtol=1e-5)
    np.testing.assert_allclose(mce, gaps.max(), rtol=1e-5)


def test_cells_of_the_mass_histogram_resolve_doubt_to_one_percent():
    metric = metrics.ExpectedCalibrationError(binning="mass", from_logits=False)
    doubt = np.geomspace(1.0, 1e-5, 300).astype("float32")
    cell = metric._cell(1.0 - doubt).numpy()
    # Two confidences in one cell differ in 1 - confidence by a factor of at
    # most 2^(1/128); a hundredth of slack is the rounding of 1 - 1e-5.
    same = cell[1:] == cell[:-1]
    ratio = doubt[:-1] / doubt[1:]
    assert np.all(ratio[same] < 2 ** (1 / CELLS_PER_OCTAVE) * 1.01)
    assert cell[0] == 0
    assert metric._cell(np.float32([1.0])).numpy() == [24 * 128 - 1]


def test_bernoulli_output_counts_as_two_classes():
    y, logits, weight = make_data(classes=2)
    z = logits[:, 1:] - logits[:, :1]
    for cls in SCORES:
        two = value(cls(from_logits=True), y, logits, sample_weight=weight)
        for output, from_logits in ((z, True), (1 / (1 + np.exp(-z)), False)):
            metric = cls(from_logits=from_logits)
            one = value(metric, y, output, sample_weight=weight)
            np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.parametrize("cls", SCORES)
def test_labels_may_be_integers_or_one_hot(cls):
    y, logits, _ = make_data()
    expected = value(cls(from_logits=True), y, logits)
    for labels in (y[:, None], y.astype("float32"), np.eye(4)[y]):
        assert value(cls(from_logits=True), labels, logits) == expected


@pytest.mark.parametrize("cls", SCORES)
def test_weights_are_repetitions_and_axes_after_the_batch_are_examples(cls):
    y, logits, _ = make_data(12)
    times = np.arange(12) % 3
    expected = value(
        cls(from_logits=True), np.repeat(y, times), np.repeat(logits, times, 0)
    )
    flat = value(cls(from_logits=True), y, logits, sample_weight=times)
    folded = value(
        cls(from_logits=True),
        y.reshape(6, 2),
        logits.reshape(6, 2, 4),
        sample_weight=times.reshape(6, 2),
    )
    np.testing.assert_allclose([flat, folded], expected, rtol=1e-5)


def test_likelihood_from_logits_does_not_underflow():
    nll = value(
        metrics.NegativeLogLikelihood(from_logits=True), [1], [[500.0, 0.0]]
    )
    assert nll == 500.0


def test_likelihood_of_an_impossible_label_is_infinite():
    metric = metrics.NegativeLogLikelihood(from_logits=False)
    assert value(metric, [1], [[1.0, 0.0]]) == np.inf
    metric.reset_state()
    assert value(metric, [0], [[1.0, 0.0]]) == 0.0


@pytest.mark.parametrize(
    ("y", "p"),
    [
        (0, [3.0, -1.0]),
        (0, [np.nan, 0.5]),
        (2, [0.5, 0.5]),
        (-1, [0.5, 0.5]),
        (0.5, [0.5, 0.5]),
        (np.nan, [0.5, 0.5]),
    ],
    ids=["logits", "nan", "too high", "negative", "fraction", "nan label"],
)
def test_rows_that_are_no_distribution_show_as_nan(y, p):
    # Between two sound examples, which must not hide it.
    labels, probs = np.array([0, y, 1]), np.array([[0.5, 0.5], p, [0.1, 0.9]])
    for cls in SCORES:
        looks_at_it = p != [0.5, 0.5] or cls is not metrics.PredictiveEntropy
        assert (
            np.isnan(value(cls(from_logits=False), labels, probs))
            == looks_at_it
        ), cls


def test_shape_of_labels_is_checked():
    with pytest.raises(ValueError, match=r"`y_true` must .*\(5, 3\)"):
        metrics.BrierScore(from_logits=False).update_state(
            np.zeros((5, 3)), np.ones((5, 4)) / 4
        )


@pytest.mark.parametrize("cls", SCORES)
def test_from_logits_is_checked(cls):
    with pytest.raises(ValueError, match="`from_logits` must be.*'a'"):
        cls(from_logits="a")


@pytest.mark.parametrize("cls", BINNED)
def test_bins_are_checked(cls):
    for num_bins in (0, 2.5):
        with pytest.raises(ValueError, match=f"num_bins={num_bins}"):
            cls(num_bins=num_bins)
    with pytest.raises(ValueError, match="binning='log'"):
        cls(binning="log")


def test_compiled_updates_equal_eager_ones():
    y, logits, weight = make_data()
    eager = [cls(from_logits=True) for cls in SCORES]
    eager += [cls(from_logits=True, binning="mass") for cls in BINNED]
    compiled = [type(m).from_config(m.get_config()) for m in eager]

    @tf.function(jit_compile=True)
    def step(y, logits, weight):
        for metric in compiled:
            metric.update_state(y, logits, weight)

    for part in np.array_split(np.arange(len(y)), 4):
        step(y[part], logits[part], weight[part])
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(
            value(a, y, logits, sample_weight=weight), b.result(), rtol=1e-5
        )


def test_two_replicas_give_the_numbers_of_one(mirrored):
    y, logits, weight = make_data(60)

    def evaluate():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Identity()])
        model.compile(
            loss=cross_entropy(),
            weighted_metrics=[cls(from_logits=True) for cls in SCORES]
            + [
                cls(from_logits=True, binning="mass", name=f"{i}_mass")
                for i, cls in enumerate(BINNED)
            ],
            jit_compile=False,
        )
        data = tf.data.Dataset.from_tensor_slices((logits, y, weight))
        return model.evaluate(data.batch(16), verbose=0, return_dict=True)

    one = evaluate()
    with mirrored.scope():
        two = evaluate()
    assert one.keys() == two.keys()
    for name in one.keys() - {"loss"}:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-5)


def test_histogram_adds_up_over_replicas(mirrored):
    with mirrored.scope():
        metric = metrics.ExpectedCalibrationError(num_bins=2, from_logits=False)
    mirrored.run(metric.update_state, args=([0, 1, 1], [[0.8, 0.2]] * 3))
    expected = [[0, 0, 0], [6, 4.8, 2]]
    np.testing.assert_allclose(np.array(metric.totals), expected, rtol=1e-6)


def test_early_stopping_minimises_the_metric():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    judged = [cls(from_logits=True) for cls in SCORES]
    judged = [m for m in judged if m.name != "predictive_entropy"]
    model.compile(
        "sgd",
        cross_entropy(),
        metrics=judged,
    )
    y, logits, _ = make_data(8)
    stops = [keras.callbacks.EarlyStopping(m.name) for m in judged]
    model.fit(logits, y, epochs=1, verbose=0, callbacks=stops)
    assert all(stop.monitor_op(0.0, 1.0) for stop in stops)
    assert not any(stop.monitor_op(1.0, 0.0) for stop in stops)


@pytest.mark.parametrize("column", [False, True], ids=["flat", "column"])
def test_padding_without_weight_needs_no_valid_label(column):
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7]], "float32")
    labels, weights = np.array([0, -1]), np.array([2.0, 0.0])
    if column:
        weights = weights[:, None]
    nll = metrics.NegativeLogLikelihood(from_logits=False)
    nll.update_state(labels, probabilities, weights)
    assert float(nll.result()) == pytest.approx(-np.log(0.9), rel=1e-6)
    ece = metrics.ExpectedCalibrationError(from_logits=False)
    ece.update_state(labels, probabilities, weights)
    assert float(ece.result()) == pytest.approx(0.1, rel=1e-5)
