import functools
import re

import cases
import costs
import lowering
import programs
import pytest
import tensorflow as tf

if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 21):
    pytest.skip(
        "TensorFlow before 2.21 writes no StableHLO", allow_module_level=True
    )

CHIPS = 4
# The programs are lowered without a step.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*no posterior before its first step"),
    pytest.mark.filterwarnings("ignore:.*has learned no variances yet"),
]


@functools.cache
def lowered(method):
    """Returns the programs of both steps and the bytes of the weights."""
    steps = lowering.Steps(cases.Case(f"{method}/small"), CHIPS)
    texts = {"train": steps.train(), "predict": steps.predict()}
    return texts, steps.weight_bytes


def depends_on_the_chip(text):
    """Whether the number of the replica, an integer, is made use of."""
    number = re.compile(r"replica_id.*\n *(%\d+) = stablehlo.convert .*\n")
    match = number.search(text)
    rest = text[match.end() :].partition("\n  }")[0]
    return re.search(rf"{match[1]}\b", rest) is not None


@pytest.mark.parametrize(
    "method, reduced, draws",
    [
        ("sgd", 1, False),
        ("atmc", 1, False),
        ("vogn", 2, True),
        ("radial", 1, True),
        ("taylor_vi", 1, False),
    ],
    ids=str,
)
def test_chips_add_up_what_the_method_needs_and_no_more(method, reduced, draws):
    texts, weight_bytes = lowered(method)
    train, predict = texts["train"], texts["predict"]
    names, sizes = zip(*programs.lowered_collectives(train), strict=True)
    assert set(names) == {"all-reduce"}
    # The objective has one number of its own for each tensor.
    own = 4 * 6 if method == "taylor_vi" else 0
    assert sum(sizes) == reduced * weight_bytes + own
    # Only draws of weights are different on every chip.
    assert depends_on_the_chip(train) == draws
    assert programs.lowered_collectives(predict) == []
    assert programs.complaints(train) == programs.complaints(predict) == []


@pytest.mark.parametrize("method", cases.METHODS)
def test_step_costs_no_more_than_recorded(method):
    case = f"{method}/small"
    size = cases.Case(case).network.batch_size
    for step, text in lowered(method)[0].items():
        values = (case, step, f"v5e:2x{CHIPS // 2}", size)
        before = costs.recorded(dict(zip(costs.STEP, values, strict=True)))
        assert before is not None, f"record {case}: compile_check.py --record"
        found = lowering.facts(text)
        assert found["complaints"] == []
        assert costs.increases(found, before) == []


@pytest.mark.parametrize("method", cases.METHODS)
def test_program_holds_no_constant_of_half_a_megabyte(method):
    # The identity of the size of the last factor would have 4 MB.
    for text in lowered(method)[0].values():
        digits = map(len, re.findall(r'dense<"0x(\w+)"', text))
        assert max(digits, default=0) < 2 * 500_000


def test_operation_that_xla_does_not_know_is_named():
    spec = tf.TensorSpec((4,), "int32")
    with pytest.raises(lowering.NotLowered, match="PyFunc"):
        lowering.lowered(lambda x: tf.numpy_function(abs, [x], "int32"), spec)


def test_dynamic_shape_is_complained_of():
    spec = tf.TensorSpec((4,), "float32")
    text = lowering.lowered(lambda x: tf.boolean_mask(x, x > 0), spec)
    assert "dynamic shape" in programs.complaints(text)[0]


@pytest.mark.parametrize(
    "name, batch, message",
    [
        ("atmc/alexnet", None, "Received: name='atmc/alexnet'"),
        ("adam/small", None, "with a method out of sgd, atmc"),
        ("atmc/small", 10, "`batch_size` must be a multiple of the 4 chips"),
    ],
    ids=str,
)
def test_wrong_case_is_refused(name, batch, message):
    with pytest.raises(ValueError, match=message):
        cases.Case(name, batch).batch_of(CHIPS)
