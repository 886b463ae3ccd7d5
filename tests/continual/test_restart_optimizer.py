import keras
import numpy as np
import pytest

from keras_bdl.continual._posterior_becomes_prior import restart_optimizer


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(0.1, 5), amsgrad=True
        ),
        lambda: keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.3),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True),
    ],
)
def test_restarted_optimizer_steps_like_a_new_one(make):
    used, new = make(), make()
    w = keras.Variable([1.0, -2.0])
    used.build([w])
    for _ in range(4):
        used.apply([keras.ops.ones(2)])
    restart_optimizer(used)
    start = [3.0, 4.0]
    ways = []
    w.assign(start)
    other = keras.Variable(start)
    new.build([other])
    for optimizer, variable in ((used, w), (new, other)):
        for gradient in ([1.0, -0.5], [0.3, 2.0]):
            optimizer.apply([keras.ops.convert_to_tensor(gradient)])
        ways.append([np.asarray(v) for v in (variable, *optimizer.variables)])
    for a, b in zip(*ways, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_changed_learning_rate_stays():
    optimizer = keras.optimizers.Adam(0.1)
    restart_optimizer(optimizer)  # not built: nothing to forget
    optimizer.build([keras.Variable([1.0])])
    optimizer.learning_rate = 0.02
    optimizer.apply([keras.ops.ones(1)])
    restart_optimizer(optimizer)
    assert float(optimizer.learning_rate) == pytest.approx(0.02)
    assert optimizer.iterations == 0
