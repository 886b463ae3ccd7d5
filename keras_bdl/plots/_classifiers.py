"""Pictures of classifiers: calibration, referral and entropies."""

from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl.evaluation import calibration_bins
from keras_bdl.evaluation._calibration import CalibrationBins
from keras_bdl.evaluation._ranking import referral_accuracy
from keras_bdl.evaluation._ranking import referral_auroc
from keras_bdl.evaluation._ranking import uncertainty_of
from keras_bdl.plots._canvas import COLORS
from keras_bdl.plots._canvas import DARK
from keras_bdl.plots._canvas import GREY
from keras_bdl.plots._canvas import add_legend
from keras_bdl.plots._canvas import add_method_legend
from keras_bdl.plots._canvas import classifications
from keras_bdl.plots._canvas import method_styles
from keras_bdl.plots._canvas import open_axes
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import CountedEntries
from keras_bdl.prediction._predictions import counted_entries
from keras_bdl.prediction._predictions import labelled_entries

# The axis of confidences ends at HIGHEST. Higher bins become one point there.
SMALLEST_DOUBT = 1e-4
HIGHEST = 1 - SMALLEST_DOUBT
# The important ticks come first. Later ones without room are left out.
TICKS = (0.9, 0.99, 0.999, HIGHEST, 0.5, 0, 0.97, 0.997, 0.7, 0.3, 0.8, 0.6)
# Room that a label and each of its characters need, as shares of the axis.
LABEL_GAP, CHARACTER_WIDTH = 0.03, 0.018


def reliability_diagram(
    predictions: Any,
    y: ArrayLike | None = None,
    *,
    num_bins: int = 20,
    ax: Any = None,
) -> Any:
    """Draws confidence minus accuracy against confidence.

    Use it to see whether a classifier is over- or under-confident. The inputs
    are sorted by confidence into bins of equal size. The axis of the
    confidence is linear in `-log(1 - confidence)`, which spreads out
    confidences near 1, where most inputs of a trained network lie. The axis
    ends at 0.9999. All bins with a higher mean confidence become one point at
    this end, their weighted mean. Points above the dashed line are
    over-confident, points below it are under-confident.

    Args:
        predictions: A `ClassificationPrediction`, or a dict of them by name.
        y: Labels, integers or one-hot. Defaults to `None`, the labels in the
            data of each prediction.
        num_bins: Number of bins. Defaults to `20`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes.

    Example:

    ```python
    keras_bdl.plots.reliability_diagram(prediction, y_test, num_bins=5)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), figure 3
    """
    curves = {
        name: _bins(prediction, y, num_bins)
        for name, prediction in classifications(predictions).items()
    }
    ax = open_axes(ax)
    ax.axhline(0.0, color=DARK, linestyle="--", linewidth=1.2)
    for name, style in method_styles(curves).items():
        ax.plot(
            np.minimum(curves[name].confidence, HIGHEST),
            curves[name].gap,
            label=name,
            markersize=4.5,
            linewidth=1.6,
            **style,
        )
    _spread_near_one(ax)
    ax.set_xlabel("confidence (highest probability)")
    ax.set_ylabel("confidence − accuracy")
    _name_the_sides(ax)
    add_method_legend(ax)
    return ax


def _bins(
    prediction: ClassificationPrediction, y: Any, num_bins: int
) -> CalibrationBins:
    counted = labelled_entries(prediction, y)
    correct = counted.prediction.predicted_classes == counted.y
    return _pool_highest(
        calibration_bins(
            counted.prediction.confidence,
            correct,
            num_bins=num_bins,
            binning="mass",
        )
    )


def _pool_highest(bins: CalibrationBins) -> CalibrationBins:
    """Joins all bins beyond the end of the axis into one bin."""
    beyond = bins.confidence >= HIGHEST
    if not beyond.any():
        return bins
    count = bins.count[beyond]
    pooled = [count.sum()] + [
        np.average(values[beyond], weights=count)
        for values in (bins.confidence, bins.accuracy)
    ]
    return CalibrationBins(
        *(
            np.append(values[~beyond], value)
            for values, value in zip(bins, pooled, strict=True)
        )
    )


def _spread_near_one(ax: Any) -> None:
    def forward(confidence: Any) -> np.ndarray:
        return -np.log10(np.maximum(1.0 - confidence, SMALLEST_DOUBT / 10))

    def inverse(position: np.ndarray) -> np.ndarray:
        return 1.0 - 10.0**-position

    ax.set_xscale("function", functions=(forward, inverse))
    low, high = forward(ax.dataLim.intervalx)
    low = min(low, max(0.0, high - 1.0))  # at least one decade if possible
    margin = 0.05 * (high - low) + 0.02
    low, high = low - margin, high + margin
    kept: list[tuple] = []
    for tick in TICKS:
        place = (forward(tick) - low) / (high - low)
        half = (CHARACTER_WIDTH * len(_tick_label(tick)) + LABEL_GAP) / 2
        free = all(abs(place - p) > half + h for p, h, _ in kept)
        if 0 <= place <= 1 and free:
            kept.append((place, half, tick))
    ticks = [tick for *_, tick in kept]
    ax.set_xticks(ticks, [_tick_label(tick) for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlim(inverse(low), inverse(high))


def _tick_label(tick: float) -> str:
    return f"≥ {tick:g}" if tick == HIGHEST else f"{tick:g}"


def _name_the_sides(ax: Any) -> None:
    """Labels both sides of the dashed line and makes room for the labels."""
    low, high = ax.dataLim.intervaly
    room = max(0.02, 0.45 * max(high, -low))
    ax.set_ylim(min(1.1 * low, -room), max(1.1 * high, room))
    look = {"rotation": 270, "color": GREY, "fontsize": "small"}
    for place, text in ((1.0, "over-confident"), (0.0, "under-confident")):
        ax.annotate(
            text,
            (1.02, place),
            xycoords="axes fraction",
            va="top" if place else "bottom",
            annotation_clip=False,
            **look,
        )


REFERRAL_SCORES = {"accuracy": "accuracy", "auroc": "AUROC"}


def referral_curve(
    predictions: Any,
    y: ArrayLike | None = None,
    *,
    score: str = "accuracy",
    uncertainty: str = "mutual_information",
    highest: float = 0.5,
    ax: Any = None,
) -> Any:
    """Draws the score of the remaining inputs against the referred share.

    Use the curve to see whether the model is wrong on uncertain inputs. The
    most uncertain inputs are referred first, for example to a doctor, and the
    model answers the rest.

    Args:
        predictions: A `ClassificationPrediction`, or a dict of them by name.
        y: Labels, integers or one-hot. Defaults to `None`, the labels in the
            data of each prediction.
        score: `"accuracy"`, or `"auroc"` for two classes. Defaults to
            `"accuracy"`.
        uncertainty: Measure by which inputs are referred, as in
            `keras_bdl.evaluate`. A prediction of a single sample has no mutual
            information, so the function uses its entropy instead. The legend
            says so if other predictions have mutual information. Defaults to
            `"mutual_information"`.
        highest: Largest share referred, below 1. Defaults to `0.5`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes.

    Example:

    ```python
    keras_bdl.plots.referral_curve(prediction, y_test)
    ```
    """
    check_choice("score", score, tuple(REFERRAL_SCORES))
    check_number("highest", highest, above=0, below=1)
    fractions = np.linspace(0.0, highest, 51)
    curves, used = {}, {}
    for name, prediction in classifications(predictions).items():
        counted = labelled_entries(prediction, y)
        used[name], values = uncertainty_of(counted.prediction, uncertainty)
        curves[name] = _referral(counted, score, values, fractions)
    labels, xlabel = _named_measures(used, uncertainty)
    ax = open_axes(ax)
    for name, style in method_styles(curves).items():
        ax.plot(
            100 * fractions,
            curves[name],
            label=labels[name],
            markevery=10,
            markersize=4.5,
            linewidth=1.6,
            **style,
        )
    ax.set_xlim(0.0, 100 * highest)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(f"{REFERRAL_SCORES[score]} of the rest")
    add_method_legend(ax)
    return ax


def _named_measures(
    used: dict[Any, str], wanted: str
) -> tuple[dict[Any, Any], str]:
    """Returns labels of the lines and of the axis that name the measures."""
    text = {name: measure.replace("_", " ") for name, measure in used.items()}
    if len(set(used.values())) == 1:
        (shared,) = set(text.values())
        return {name: name for name in used}, f"referred by {shared} (%)"
    labels = {
        name: name if measure == wanted else f"{name} (by {text[name]})"
        for name, measure in used.items()
    }
    wanted = wanted.replace("_", " ")
    return labels, f"referred by {wanted} unless noted (%)"


def _referral(
    counted: CountedEntries,
    score: str,
    uncertainty: np.ndarray,
    fractions: np.ndarray,
) -> list[float]:
    prediction, y = counted.prediction, counted.y
    if score == "accuracy":
        correct = prediction.predicted_classes == y
        return referral_accuracy(uncertainty, correct, fractions=fractions)
    if prediction.num_classes != 2:
        raise ValueError(
            '`score` must be "accuracy" for more than two classes. '
            f"Received: {score=} and {prediction.num_classes} classes"
        )
    positive = prediction.mean[:, 1]
    return referral_auroc(uncertainty, positive, y, fractions=fractions)


def entropy_histograms(
    inside: ClassificationPrediction,
    outside: ClassificationPrediction,
    *,
    num_bins: int = 30,
    ax: Any = None,
    color: str = COLORS[0],
    outside_color: str = COLORS[1],
) -> Any:
    """Draws the entropies of in- and out-of-distribution inputs.

    Use it to see how well the entropy detects unknown inputs. The less the two
    histograms overlap, the better is the detection. Each histogram shows shares
    of its own inputs, in bins of equal width on `[0, log(classes)]`.

    Args:
        inside: `ClassificationPrediction` for in-distribution inputs.
        outside: `ClassificationPrediction` of the same model for
            out-of-distribution inputs.
        num_bins: Number of bins. Defaults to `30`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.
        color: Colour of the in-distribution inputs. Defaults to blue.
        outside_color: Colour of the out-of-distribution inputs. Defaults to
            vermilion.

    Returns:
        The axes.

    Example:

    ```python
    unknown = keras_bdl.predict(model, 5.0 * x, posterior, verbose=0)
    keras_bdl.plots.entropy_histograms(prediction, unknown)
    ```
    """
    classifications({"inside": inside, "outside": outside})
    check_count("num_bins", num_bins)
    if inside.num_classes != outside.num_classes:
        raise ValueError(
            "`outside` must have the classes of `inside`. Received: "
            f"{inside.num_classes} classes inside and "
            f"{outside.num_classes} outside"
        )
    ax = open_axes(ax)
    highest = np.log(inside.num_classes)
    for prediction, name, look, hatch in (
        (inside, "in distribution", color, None),
        (outside, "out of distribution", outside_color, "////"),
    ):
        entropy = counted_entries(prediction).prediction.entropy
        entropy = np.clip(entropy, 0.0, highest)
        ax.hist(
            entropy,
            bins=np.linspace(0.0, highest, num_bins + 1),
            weights=np.full(entropy.size, 100.0 / entropy.size),
            histtype="stepfilled",
            facecolor=(look, 0.35),
            edgecolor=look,
            linewidth=1.4,
            hatch=hatch,
            label=name,
        )
    ax.set_xlim(0.0, highest)
    ax.set_xlabel("predictive entropy (nats)")
    ax.set_ylabel("share of the inputs (%)")
    add_legend(ax)
    return ax
