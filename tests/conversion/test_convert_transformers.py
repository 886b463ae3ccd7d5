"""Files of converted transformers of KerasHub, with random weights."""

import numpy as np
import pytest

import keras_bdl as bdl
from tests.curvature.test_transformers import data_of
from tests.curvature.test_transformers import gpt2
from tests.curvature.test_transformers import vit


def adapted_vit():
    model = vit()
    model.backbone.enable_lora(2)
    return model


# Neither has a `.keras` file that Keras can read, as the guide says.
@pytest.mark.parametrize(
    ("task", "to"),
    [(gpt2, "mean_field"), (adapted_vit, {"lora": "mean_field"})],
)
def test_weights_of_a_converted_transformer_return_to_a_new_copy(
    task, to, tmp_path
):
    model = task()
    x, _ = data_of(gpt2 if task is gpt2 else vit)
    trained = bdl.convert(model, to, verbose=0)
    for variable in trained.trainable_variables:
        variable.assign_add(np.full(variable.shape, 0.01, variable.dtype))
    trained.save_weights(tmp_path / "net.weights.h5")
    again = bdl.convert(model, to, verbose=0)
    again.load_weights(tmp_path / "net.weights.h5")
    for found, kept in zip(again.weights, trained.weights, strict=True):
        np.testing.assert_array_equal(found, kept)
    outputs = [np.asarray(m(x, training=False)) for m in (again, trained)]
    np.testing.assert_array_equal(*outputs)
