"""Curvature of whole transformers of KerasHub, with random weights."""

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl import curvature
from tests.curvature.brute_force import check
from tests.helpers import cross_entropy

hub = pytest.importorskip(
    "keras_hub", reason='python -m pip install -e ".[hub]"'
)

RNG = np.random.default_rng(0)
EXAMPLES, TOKENS, WORDS = 4, 5, 11
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 4}


def bert():
    backbone = hub.models.BertBackbone(
        vocabulary_size=WORDS,
        intermediate_dim=8,
        max_sequence_length=TOKENS,
        dropout=0.0,
        **SIZES,
    )
    return hub.models.BertTextClassifier(
        backbone=backbone, num_classes=3, preprocessor=None, dropout=0.0
    )


def gpt2():
    backbone = hub.models.GPT2Backbone(
        vocabulary_size=WORDS,
        intermediate_dim=8,
        max_sequence_length=TOKENS,
        dropout=0.0,
        **SIZES,
    )
    return hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)


def vit():
    backbone = hub.models.ViTBackbone(
        image_shape=(4, 4, 3), patch_size=(2, 2), mlp_dim=8, **SIZES
    )
    return hub.models.ViTImageClassifier(
        backbone=backbone, num_classes=3, preprocessor=None
    )


def data_of(task):
    tokens = RNG.integers(1, WORDS, (EXAMPLES, TOKENS)).astype("int32")
    lengths = RNG.integers(3, TOKENS + 1, (EXAMPLES, 1))
    mask = (np.arange(TOKENS) < lengths).astype("int32")
    labels = RNG.integers(0, 3, EXAMPLES)
    inputs = {"token_ids": tokens, "padding_mask": mask}
    if task is bert:
        return {**inputs, "segment_ids": np.zeros_like(tokens)}, labels
    if task is gpt2:
        return inputs, np.roll(tokens, -1, axis=1)
    images = RNG.normal(size=(EXAMPLES, 4, 4, 3)).astype("float32")
    return images, labels


@pytest.mark.filterwarnings("ignore:Per-example curvature has no rule")
@pytest.mark.parametrize("adapted", [False, True], ids=["whole", "adapters"])
@pytest.mark.parametrize("task", [bert, gpt2, vit], ids=lambda t: t.__name__)
def test_second_moments_of_a_transformer_equal_a_loop(task, adapted):
    weights = []

    def make():
        model = task()
        if adapted:
            model.backbone.enable_lora(2)
        if not weights:
            weights.extend(RNG.normal(size=v.shape) / 2 for v in model.weights)
        model.set_weights(weights)
        plain = keras.Model(model.inputs, model.outputs)
        plain.compile(loss=cross_entropy())
        return plain

    x, y = data_of(task)
    check(make, x, y, rows=False)


@pytest.mark.filterwarnings("ignore:Per-example curvature has no rule")
def test_causal_language_model_learns_and_reports_each_token():
    task = gpt2()
    model = bdl.Model(task.inputs, task.outputs)
    x, _ = data_of(gpt2)
    y = (x["token_ids"] + 1) % WORDS
    model.compile(
        bdl.VOGN(0.1, dataset_size=100 * y.size),
        cross_entropy(),
        observations="positions",
    )
    logs = model.fit(x, y, epochs=80, verbose=0).history
    assert logs["loss"][-1] < 0.8 * logs["loss"][0]
    program = bdl.PosteriorPredictive(
        model, samples=2, outputs=("mutual_information",)
    )
    found = program.predict(x, verbose=0)
    assert list(found) == ["mutual_information"]
    assert found["mutual_information"].shape == (EXAMPLES, TOKENS)
    assert found["mutual_information"].min() > 0


def test_small_layers_of_a_transformer_are_named():
    model = vit()
    model.compile(loss=cross_entropy())
    x, y = data_of(vit)
    with pytest.warns(UserWarning, match="for `ViTPatchingAndEmbedding`, and"):
        curvature.second_moments(model, (x, y))
