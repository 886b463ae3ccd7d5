import numpy as np
import pytest

from keras_bdl import conformal
from keras_bdl._data import _checked_inputs as row_blocks
from keras_bdl.conformal import LAC
from keras_bdl.conformal import RiskControl
from keras_bdl.conformal._label_losses import THRESHOLDS
from keras_bdl.prediction import ClassificationPrediction
from tests.conformal.helpers import classified


def masks(n=30, shape=(4, 3), classes=2, seed=0):
    """Returns a segmentation of small images, and its labels."""
    pool = classified(n * int(np.prod(shape)), classes, seed)
    log_mean = pool.log_mean.reshape(n, *shape, classes)
    return ClassificationPrediction(log_mean, y=pool.y.reshape(n, *shape))


def brute_force(losses, candidates, n, risk):
    """Returns the largest threshold that equation (1) allows, by a loop."""
    kept = [t for t in candidates if (sum(losses(t)) + 1) / (n + 1) <= risk]
    return max(kept)


@pytest.mark.parametrize("classes", [2, 3])
def test_threshold_for_masks_is_that_of_a_loop_over_all(classes):
    p = masks(classes=classes)

    def losses(t):
        found = []
        for probs, y in zip(p.mean, p.y, strict=True):
            missed = true = 0
            for pixel in np.ndindex(y.shape):
                if classes == 2 and y[pixel] == 0:
                    continue
                true += 1
                missed += probs[pixel][y[pixel]] < t
            found.append(missed / true if true else 0.0)
        return found

    control = RiskControl().fit(p, risk=0.15)
    # The risk jumps at the probability of a true label only.
    true = np.take_along_axis(p.mean, p.y[..., None], -1)[..., 0]
    jumps = true[p.y == 1] if classes == 2 else true.ravel()
    expected = brute_force(losses, jumps, 30, 0.15)
    assert control.threshold == expected
    report = control(p).evaluate()
    np.testing.assert_allclose(report.loss, np.mean(losses(control.threshold)))
    assert report.mean_size == control(p).membership.sum() / 30


def test_risk_of_missing_the_label_gives_the_sets_of_lac():
    p, test = classified(50), classified(40, seed=1)
    control = RiskControl("miscoverage").fit(p, risk=0.2)
    sets = LAC().fit(p, coverage=0.8)(test)
    np.testing.assert_array_equal(control(test).membership, sets.membership)


def false_negatives(inside, y):
    return (y & ~inside).reshape(len(y), -1).sum(1) / 12


def test_loss_of_the_user_is_controlled_and_saved_by_its_name(storage):
    p = masks()
    control = RiskControl(false_negatives, loss_bound=1.0).fit(p, risk=0.1)
    threshold = control.threshold
    total = false_negatives(p.mean[..., 1] >= threshold, p.y == 1).sum()
    above = np.nextafter(threshold, 1)
    more = false_negatives(p.mean[..., 1] >= above, p.y == 1).sum()
    assert (total + 1) / 31 <= 0.1 < (more + 1) / 31
    control.save(storage / "risk.bdl")
    with pytest.raises(ValueError, match="pass `custom_objects`"):
        conformal.load(storage / "risk.bdl")
    loaded = conformal.load(
        storage / "risk.bdl",
        custom_objects={"false_negatives": false_negatives},
    )
    np.testing.assert_array_equal(loaded(p).membership, control(p).membership)
    assert str(loaded(p).evaluate()) == str(control(p).evaluate())


def test_too_few_examples_give_the_set_of_all_labels_and_say_so():
    p = masks(8)
    with pytest.warns(UserWarning, match="8 calibration examples.*the 9"):
        control = RiskControl().fit(p, risk=0.1)
    assert control(p).membership.all()


def test_labels_or_classes_of_another_model_are_refused(storage):
    sizes = {
        "one label": (),
        "four labels": (4,),
        "five labels": (5,),
        "images": (4, 3),
    }
    data = {
        (name, classes): masks(30, shape, classes)
        for name, shape in sizes.items()
        for classes in (2, 3, 4)
    }
    for kind, p in data.items():
        control = RiskControl().fit(p, risk=0.2)
        control.save(storage / "risk.bdl")
        loaded = conformal.load(storage / "risk.bdl")
        for other, q in data.items():
            for method in (control, loaded):
                if other == kind:
                    assert len(method(q)) == 30
                    continue
                # Four labels, present or absent, are not four classes.
                with pytest.raises(ValueError, match="the classes of `fit`"):
                    method(q)
        if kind[0] == "images":
            assert len(loaded(masks(5, (7, 2), kind[1]))) == 5


def test_threshold_may_meet_its_bound_with_equality():
    # Two true labels each. A threshold of 0.3 misses one of two labels in
    # three of the examples: (3/2 + 1) / 10 is the risk, to the last bit.
    present = np.full((9, 2), 0.8)
    present[:3, 0] = 0.2
    present[3:, 0] = 0.3
    log_mean = np.log(np.stack([1 - present, present], -1))
    p = ClassificationPrediction(log_mean, y=np.ones((9, 2), int))
    probs = np.exp(log_mean[..., 1])
    control = RiskControl().fit(p, risk=0.25)
    assert control.threshold == probs[3, 0]
    control.fit(p, risk=0.2499)
    assert control.threshold == probs[0, 0]


def test_rounded_losses_that_just_meet_the_bound_do_not_pass():
    p = ClassificationPrediction(np.log(np.full((3, 2), 0.5)), y=[1, 1, 1])
    for loss, threshold in ((1 / 3, p.mean[0, 1]), (0.3333, 2.0)):
        # In floats, (1/3 + 1/3 + 1/3 + 1) / 4 is 1/2, the risk. The loss may
        # have been a little above 1/3 before it was rounded.
        control = RiskControl(lambda inside, y, a=loss: a * ~inside)
        assert control.fit(p, risk=0.5).threshold == threshold


def test_losses_outside_the_theorem_are_refused():
    p = masks()
    for loss, message in (
        (lambda inside, y: inside.mean((1, 2)), "must be at most `risk`"),
        (lambda inside, y: y.mean((1, 2)) + 9.0, "of at most `loss_bound`"),
        (lambda inside, y: 0.0, "one number of at most"),
        (
            # Grows with the set, apart from empty and whole sets.
            lambda inside, y: np.select(
                [inside.all((1, 2)), inside.any((1, 2))],
                [0, inside.mean((1, 2))],
                0.6,
            ),
            "must not be larger for a larger set",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            RiskControl(loss).fit(p)
    with pytest.raises(ValueError, match="`loss` must be one of"):
        RiskControl("recall")
    with pytest.raises(ValueError, match="`risk` must be a number"):
        RiskControl().fit(p, risk=1.5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_threshold_in_blocks_is_the_largest_of_all_probabilities(
    dtype, monkeypatch
):
    p = masks()
    p = ClassificationPrediction(p.log_mean.astype(dtype), y=p.y)
    probs, present = p.mean[..., 1], p.y == 1

    def losses(t):
        missed = (present & (probs < t)).sum((1, 2))
        return missed / np.maximum(present.sum((1, 2)), 1)

    sizes = []

    def loss(inside, y):
        sizes.append(len(inside))
        return (y & ~inside).sum((1, 2)) / np.maximum(y.sum((1, 2)), 1)

    expected = brute_force(losses, np.unique(probs), 30, 0.15)
    monkeypatch.setattr(row_blocks, "BLOCK_ENTRIES", 7 * 24)
    control = RiskControl(loss).fit(p, risk=0.15)
    assert control.threshold == expected
    assert max(sizes) == 7
    # No more passes than halvings, for 360 probabilities among 2^62 floats.
    assert sum(sizes) <= 30 * 62
    sets = control(p)
    np.testing.assert_array_equal(sets.membership, probs >= expected)
    report = sets.evaluate()
    np.testing.assert_allclose(report.loss, losses(expected).mean())
    assert sum(group["count"] for group in report.by_size.values()) == 30
    group = report.by_size["6-10"]
    chosen = losses(expected)[(sets.sizes >= 6) & (sets.sizes <= 10)]
    assert group["count"] == len(chosen) > 1
    np.testing.assert_allclose(group["loss"], chosen.mean())
    np.testing.assert_allclose(
        group["standard_error"], chosen.std(ddof=1) / np.sqrt(len(chosen))
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_ignored_positions_count_neither_as_true_nor_as_inside(classes):
    p, q = masks(classes=classes), masks(12, classes=classes, seed=1)
    ignored = np.random.default_rng(2).uniform(size=p.y.shape) < 0.3
    y = np.where(ignored, 255, p.y)
    control = RiskControl(ignore_class=255).fit(p, y, risk=0.15)
    seen = []

    def loss(inside, truth):
        seen.append((inside, truth))
        return (truth & ~inside).reshape(len(truth), -1).sum(1) / 36

    RiskControl(loss, ignore_class=255).fit(p, y, risk=0.15)
    for inside, truth in seen:
        assert not inside[ignored].any() and not truth[ignored].any()
    # The same images, where ignored pixels are not there.
    true = np.take_along_axis(p.mean, p.y[..., None], -1)[..., 0]
    counts = ~ignored & ((p.y == 1) | (classes > 2))

    def losses(t):
        missed = (counts & (true < t)).sum((1, 2))
        return missed / np.maximum(counts.sum((1, 2)), 1)

    expected = brute_force(losses, true[counts], 30, 0.15)
    assert control.threshold == expected
    assert control(q).evaluate().mean_true > 0
    report = control(q).evaluate(np.full(q.y.shape, 255))
    assert report.loss == report.mean_true == 0.0


def test_loss_without_a_name_is_not_saved(storage):
    control = RiskControl(lambda inside, y: false_negatives(inside, y))
    control.fit(masks(), risk=0.1)
    with pytest.raises(ValueError, match="a function with a name to be saved"):
        control.save(storage / "risk.bdl")
    assert "Loss: <lambda>" in str(control(masks()).evaluate())


def part(prediction, chosen):
    log_mean, y = prediction.log_mean[chosen], prediction.y[chosen]
    return ClassificationPrediction(log_mean, y=y)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("loss", ["false_negative_rate", "miscoverage"])
def test_added_batches_give_the_next_lower_threshold_of_the_grid(classes, loss):
    p = masks(90, classes=classes)
    p.y[np.random.default_rng(2).uniform(size=p.y.shape) < 0.3] = 255
    p.y[5] = 0  # with two classes, no true label
    control, exact = (RiskControl(loss, ignore_class=255) for _ in "12")
    for chosen in (slice(0, 7), slice(7, 8), slice(8, 90)):
        control.add(part(p, chosen))
    for risk in (0.05, 0.15, 0.4, 0.7):
        best = exact.fit(p, risk=risk).threshold
        below = THRESHOLDS[THRESHOLDS <= best]
        assert control.fit(risk=risk).threshold == below[-1]
        assert 0 < below[-1] < best < 1.006 * below[-1]
    with pytest.warns(UserWarning, match="90 calibration examples.*the 99"):
        control.fit(risk=0.01)
    assert control.threshold == 0 and control(p).membership.all()


def test_sum_of_added_losses_may_meet_its_bound_with_equality():
    present = np.full((9, 2), 0.8)
    present[:3, 0] = 0.2
    present[3:, 0] = 0.3
    log_mean = np.log(np.stack([1 - present, present], -1))
    control = RiskControl()
    for row in log_mean:
        control.add(ClassificationPrediction(row[None], y=[[1, 1]]))
    # Three of nine examples miss one of two: (3/2 + 1) / 10 is the risk.
    assert 0.29 < control.fit(risk=0.25).threshold <= 0.3
    assert 0.19 < control.fit(risk=0.2499).threshold <= 0.2


def test_wrong_batches_are_refused_and_leave_no_trace():
    p = masks()
    control = RiskControl()
    with pytest.raises(ValueError, match="0 examples in batches, and no y"):
        control.fit()
    control.add(p)
    threshold = control.fit().threshold
    wrong = ClassificationPrediction(np.full_like(p.log_mean, np.nan))
    for batch, y, message in (
        (wrong, p.y, "must not hold NaN"),
        (p, np.full_like(p.y, 2), "integers from 0 to 1"),
        (masks(classes=3), None, "the classes of the batches before"),
    ):
        with pytest.raises(ValueError, match=message):
            control.add(batch, y)
    assert control.fit().threshold == threshold
    with pytest.raises(ValueError, match="and y without a prediction"):
        control.fit(y=p.y)
    with pytest.raises(ValueError, match="`loss` must be a name for `add`"):
        RiskControl(false_negatives).add(p)
    with pytest.raises(ValueError, match="of at most `loss_bound`"):
        RiskControl(loss_bound=0.5).add(p)


def test_added_label_whose_probability_is_a_threshold_is_inside():
    grid = THRESHOLDS[6000:6400]
    threshold = grid[np.exp(np.log(grid)) == grid][0]
    probs = np.log([[1 - threshold, threshold]])
    control = RiskControl("miscoverage")
    for _ in range(9):
        control.add(ClassificationPrediction(probs, y=[1]))
    assert control.fit(risk=0.1).threshold == threshold


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("as_class", [False, True])
def test_padding_counts_like_an_ignored_class(classes, as_class):
    p, q = masks(classes=classes), masks(12, classes=classes, seed=1)
    rng = np.random.default_rng(2)
    kept, later = (rng.uniform(size=m.y.shape) < 0.7 for m in (p, q))

    def marked(m, kept):
        if as_class:
            y = np.where(kept, m.y, 255)
            return ClassificationPrediction(m.log_mean, y=y, ignore_class=255)
        return ClassificationPrediction(m.log_mean, y=m.y, mask=kept)

    ignoring = RiskControl(ignore_class=255)
    ignoring.fit(p, np.where(kept, p.y, 255), risk=0.15)
    control = RiskControl().fit(marked(p, kept), risk=0.15)
    assert control.threshold == ignoring.threshold
    added = RiskControl()
    added.add(marked(p, kept))
    assert added.fit(risk=0.15).threshold == pytest.approx(
        control.threshold, rel=0.006
    )
    sets = control(marked(q, later))
    report = sets.evaluate()
    expected = ignoring(q).evaluate(np.where(later, q.y, 255))
    assert repr(report) == repr(expected)  # NaN is equal, too
    probs = q.mean[..., 1] if classes == 2 else q.mean
    inside = probs[later] >= control.threshold
    assert report.mean_size == pytest.approx(inside.sum() / len(q))
    assert report.mean_share == pytest.approx(inside.mean())
    if not as_class:
        assert not sets.membership[~later].any()
        np.testing.assert_array_equal(
            sets.sizes, sets.membership.reshape(len(q), -1).sum(1)
        )
