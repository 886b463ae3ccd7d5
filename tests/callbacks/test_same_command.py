import keras
import pytest
import tensorflow as tf

from tests.callbacks.test_checkpoint import X
from tests.callbacks.test_checkpoint import Y
from tests.callbacks.test_checkpoint import make
from tests.callbacks.test_checkpoint import run


def test_other_batches_within_an_epoch_are_refused(tmp_path):
    run(tmp_path, (2, 4), every=3)
    with pytest.raises(ValueError, match="steps of an epoch 1, where.* 6$"):
        run(tmp_path, fit={"batch_size": 60})
    model = make(compile={"steps_per_execution": 4})
    with pytest.raises(ValueError, match="steps_per_execution 4, where.* 1$"):
        run(tmp_path, model=model)
    # Of data that do not tell their length, it shows when they are over.
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(30)
    data = data.filter(lambda *_: True)
    with (
        pytest.warns(UserWarning, match="ran out of data"),
        pytest.raises(ValueError, match="epoch 2 has ended before step 3"),
    ):
        run(tmp_path, x=data)


def test_other_batches_may_begin_with_an_epoch(tmp_path):
    run(tmp_path, (2, 4))
    model, _ = run(tmp_path, fit={"batch_size": 60})
    assert model.optimizer.iterations.numpy() == 2 * 6 + 3


def test_another_optimizer_with_the_same_variables_is_refused(tmp_path):
    run(tmp_path)
    other = make()
    other.compile(keras.optimizers.AdamW(1e-3), "mse")
    with pytest.raises(ValueError, match="'AdamW', where.*'Adam'"):
        run(tmp_path, model=other)
