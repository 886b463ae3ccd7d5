"""Numbers that no public class takes, refused by the name of the argument."""

import inspect

import keras
import pytest

import keras_bdl as bdl
from tests.helpers import arguments_of

NAN, INF = float("nan"), float("inf")
POSITIVE = (0.0, -1.0, NAN, INF, "1", True)
FROM_ZERO = (-1e-3, NAN, INF, "1", True)
SHARE = (-0.1, 1.0, NAN, "0.5", True)
COUNT = (0, -1, 2.5, NAN, INF, "1", True)
SEED = (-1, 0.5, 2**63, "1", True)
BAD = {
    "learning_rate": FROM_ZERO,
    "initial_learning_rate": POSITIVE,
    "swa_learning_rate": POSITIVE,
    "swa_start_step": POSITIVE,
    "dataset_size": (0, -1, NAN, INF, "1", True),
    "prior_precision": POSITIVE,
    "beta_1": SHARE,
    "beta_2": SHARE,
    "temperature": FROM_ZERO,
    "augmentation_factor": POSITIVE,
    "damping": FROM_ZERO,
    "initial_curvature": FROM_ZERO,
    "clip_radius": POSITIVE,
    "curvature_every": COUNT,
    "update_every": COUNT,
    "max_factor_size": COUNT,
    "gradient_accumulation_steps": (1, *COUNT),
    "average_speed": POSITIVE,
    "max_speed": POSITIVE,
    "friction": (0.0, *SHARE),
    "precondition_every": COUNT,
    "precondition_end_step": COUNT,
    "loss_scale_factor": (),
    "seed": SEED,
    "stddev": POSITIVE,
    "stddev_1": POSITIVE,
    "stddev_2": POSITIVE,
    "probability_1": (0.0, *SHARE),
    "scale": POSITIVE,
    "gain": POSITIVE,
    "bias_stddev": POSITIVE,
    "concentration": POSITIVE,
    "mean": (NAN, INF, "1", True),
    "cycle_steps": COUNT,
    "initial_value": FROM_ZERO,
    "final_value": FROM_ZERO,
    "start_step": FROM_ZERO,
    "end_step": (0, -1, NAN, INF, "1", True),
    "learning_rate_equivalent": POSITIVE,
    "gradient_batch_size": COUNT,
    "learning_rate_multiplier": POSITIVE,
    "probes": COUNT,
    "truncation": POSITIVE,
    "rate": (0.0, *SHARE),
}
GIVEN = {
    "CyclicalCosine": {"initial_learning_rate": 0.1, "cycle_steps": 3},
    "LinearRamp": {"initial_value": 0.0, "final_value": 1.0, "end_step": 3},
    "MCDropout": {"layer": keras.layers.Dense(2), "rate": 0.1},
    "MeanFieldDense": {"units": 2},
    "RadialDense": {"units": 2},
    "SampledVI": {"covariance": "diagonal"},
    "SWASchedule": {
        "initial_learning_rate": 0.1,
        "swa_learning_rate": 0.1,
        "swa_start_step": 3,
    },
    "TaylorVI": {"covariance": "diagonal"},
}
# Needed for another argument to mean anything.
TOGETHER = {
    "learning_rate_equivalent": {"gradient_batch_size": 3},
    "precondition_end_step": {"precondition_every": 3},
}
LAYERS = [
    bdl.layers.MCDropout,
    bdl.layers.MeanFieldDense,
    bdl.layers.RadialDense,
]


def classes():
    yield from LAYERS
    for name in ("GroupLaplace", "ScaleMixture", "SymmetricGamma"):
        yield getattr(bdl.extend, name)
    yield from (bdl.extend.SquaredGradient, bdl.extend.UnitDirection)
    for folder in (bdl.objectives, bdl.optimizers, bdl.priors, bdl.schedules):
        for name in folder.__all__:
            if inspect.isclass(getattr(folder, name)):
                yield getattr(folder, name)


def numbers_of(cls):
    """The arguments that are numbers, of the class and its own bases."""
    found = {}
    for base in cls.__mro__:
        ours = base.__module__.startswith("keras_bdl")
        if ours and "__init__" in vars(base):
            for p in inspect.signature(base.__init__).parameters.values():
                kind = str(p.annotation)
                number = isinstance(p.default, (int, float)) or p.name in BAD
                if number or "float" in kind or "int" in kind:
                    found[p.name] = isinstance(p.default, bool)
    known = {*inspect.signature(cls).parameters, *arguments_of(cls)}
    takes_all = issubclass(cls, bdl.extend.Variational)
    # Keras checks the arguments of its own layers.
    of_keras = inspect.signature(keras.layers.Dense).parameters
    return [
        name
        for name, is_bool in found.items()
        if not is_bool and (name in known or takes_all) and name not in of_keras
    ]


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_class_refuses_bad_numbers_and_names_the_argument(cls):
    given = GIVEN.get(cls.__name__, {})
    cls(**given)
    for name in numbers_of(cls):
        for bad in BAD[name]:
            arguments = {**given, **TOGETHER.get(name, {}), name: bad}
            with pytest.raises(ValueError, match=f"^`{name}` must be"):
                cls(**arguments)
                pytest.fail(f"{cls.__name__} took {name}={bad!r}")


def test_sampler_takes_no_step_size_from_a_learning_rate_of_zero():
    with pytest.raises(ValueError, match="^`learning_rate` must be.* above 0"):
        bdl.ATMC(0.0)
    assert bdl.ATMC(0.0, initial_learning_rate=1e-3).learning_rate == 0


@pytest.mark.parametrize("cls", [bdl.VOGN, bdl.SGLD, bdl.ATMC])
def test_file_may_hold_the_last_learning_rate_of_a_schedule(cls):
    optimizer = cls(1e-3)
    optimizer.learning_rate = 0.0
    loaded = cls.from_config(optimizer.get_config())
    assert float(loaded.learning_rate) == 0


PREDICTION = bdl.prediction.ClassificationPrediction.from_probabilities(
    [[0.2, 0.8]]
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: bdl.conformal.LAC().fit(PREDICTION, [1], coverage=90),
            "Write 0.9 for 90 percent. Received: coverage=90",
        ),
        (
            lambda: bdl.metrics.IntervalCoverage(level=95),
            "Write 0.95 for 95 percent. Received: level=95",
        ),
        (
            lambda: bdl.evaluate(PREDICTION, [1], fractions=[20]),
            r"Write 0.2 for 20 percent. Received: fractions\[0\]=20",
        ),
        (
            lambda: bdl.evaluate(PREDICTION, [1], uncertainty="Entropy"),
            "Did you mean \"entropy\"\\? Received: uncertainty='Entropy'",
        ),
        (
            lambda: bdl.conformal.RiskControl("false negativ rate"),
            "Did you mean",
        ),
    ],
)
def test_near_misses_are_told_what_to_write(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unlike_values_get_no_guess():
    with pytest.raises(ValueError, match=r"'local'\). Received: estimator=7"):
        bdl.layers.MeanFieldDense(3, estimator=7)
    with pytest.raises(ValueError, match="below 1.0. Received: coverage=1.5"):
        bdl.conformal.LAC().fit(PREDICTION, [1], coverage=1.5)
