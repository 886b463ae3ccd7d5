"""Which method works with which pretrained architecture.

    python examples/benchmarks/pretrained.py [--models BERT ViT]
        [--methods VOGN] [--smoke]

Builds small networks of KerasHub and `keras.applications` with random weights:
whole, with a frozen backbone, and with adapters of rank 2 (`enable_lora`). Each
method trains each of them for four epochs, predicts, and writes and reads its
posterior. Prints a table: "yes", or the number of the error message below it.
Needs the extra `hub`.
"""

import argparse
import os
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import keras_hub
import numpy as np

import keras_bdl as bdl

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
RNG = np.random.default_rng(0)
EXAMPLES, CLASSES, TOKENS, WORDS = 16, 3, 6, 20
hub = keras_hub.models


def resnet():
    backbone = hub.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 64],
        stackwise_num_blocks=[1, 1],
        stackwise_num_strides=[1, 2],
        block_type="basic_block",
        image_shape=(16, 16, 3),
    )
    return hub.ResNetImageClassifier(
        backbone=backbone, num_classes=CLASSES, preprocessor=None
    )


def vit():
    backbone = hub.ViTBackbone(
        image_shape=(16, 16, 3),
        patch_size=(8, 8),
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=16,
        dropout_rate=0.1,
    )
    return hub.ViTImageClassifier(
        backbone=backbone, num_classes=CLASSES, preprocessor=None
    )


def language(backbone):
    return backbone(
        vocabulary_size=WORDS,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=TOKENS,
    )


def bert():
    return hub.BertTextClassifier(
        backbone=language(hub.BertBackbone),
        num_classes=CLASSES,
        preprocessor=None,
    )


def gpt2():
    return hub.GPT2CausalLM(
        backbone=language(hub.GPT2Backbone), preprocessor=None
    )


def application(name, size, **options):
    def make():
        return getattr(keras.applications, name)(
            weights=None,
            input_shape=(size, size, 3),
            classes=CLASSES,
            classifier_activation=None,
            **options,
        )

    return make


def lstm():
    return keras.Sequential(
        [
            keras.Input((TOKENS,), dtype="int32"),
            keras.layers.Embedding(WORDS, 8),
            keras.layers.LSTM(8),
            keras.layers.Dense(CLASSES),
        ]
    )


MODELS = {
    "ResNet": resnet,
    "ViT": vit,
    "BERT": bert,
    "GPT-2": gpt2,
    "EfficientNetB0": application("EfficientNetB0", 32),
    "MobileNetV3Small": application("MobileNetV3Small", 32),
    "ConvNeXtTiny": application("ConvNeXtTiny", 32),
    "LSTM": lstm,
}
WAYS = ("whole", "frozen", "adapters")


def data_of(name, model):
    """Returns inputs and labels for a model."""
    labels = RNG.integers(0, CLASSES, EXAMPLES)
    tokens = RNG.integers(1, WORDS, (EXAMPLES, TOKENS)).astype("int32")
    lengths = RNG.integers(3, TOKENS + 1, (EXAMPLES, 1))
    if name == "LSTM":
        return tokens, labels
    if name not in ("BERT", "GPT-2"):
        size = (EXAMPLES, *model.input_shape[1:])
        return RNG.normal(size=size).astype("float32"), labels
    inputs = {
        "token_ids": tokens,
        "padding_mask": (np.arange(TOKENS) < lengths).astype("int32"),
    }
    if name == "BERT":
        inputs["segment_ids"] = np.zeros_like(tokens)
        return inputs, labels
    return inputs, np.roll(tokens, -1, axis=1)  # the next tokens


def network(name, way):
    """Returns a model, or `None` if the architecture has no such way."""
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    if way != "whole":
        if not hasattr(model, "backbone"):
            return None
        if way == "frozen":
            model.backbone.trainable = False
        elif name == "ResNet":  # KerasHub gives convolutions no adapters
            return None
        else:
            model.backbone.enable_lora(2)
    return bdl.Model(model.inputs, model.outputs)


def fit(model, data, optimizer="adam", **options):
    callbacks = options.pop("callbacks", [])
    model.compile(optimizer, LOSS, **options)
    model.fit(*data, epochs=4, batch_size=8, verbose=0, callbacks=callbacks)
    return model


def by_optimizer(optimizer):
    def posterior(model, data):
        fit(model, data, optimizer())
        return model, bdl.posterior_of(model)

    return posterior


def by_objective(objective):
    def posterior(model, data):
        fit(model, data, objective=objective("diagonal"))
        return model, bdl.posterior_of(model)

    return posterior


def by_laplace(**options):
    def posterior(model, data):
        fit(model, data)
        return model, bdl.fit_laplace(model, data, verbose=0, **options)

    return posterior


def swag(model, data):
    callback = bdl.SWAG(start_epoch=0, rank=2)
    return fit(model, data, callbacks=[callback]), callback.posterior


def atmc(model, data):
    samples = bdl.callbacks.SampleCollector(1, unit="epoch")
    fit(model, data, bdl.ATMC(1e-4), callbacks=[samples])
    return model, samples.posterior


def mc_dropout(model, data):
    return fit(model, data), bdl.posteriors.MCDropout()


def mean_field(model, data):
    model = fit(bdl.convert(model, "mean_field", verbose=0), data)
    return model, bdl.posterior_of(model)


METHODS = {
    "SWAG": swag,
    "ATMC": atmc,
    "IVON": by_optimizer(bdl.IVON),
    "VOGN": by_optimizer(bdl.VOGN),
    "Noisy K-FAC": by_optimizer(bdl.NoisyKFAC),
    "sampled VI": by_objective(bdl.objectives.SampledVI),
    "Taylor VI": by_objective(bdl.objectives.TaylorVI),
    "Laplace, last layer": by_laplace(),
    "Laplace, diagonal": by_laplace(subset="all", structure="diagonal"),
    "Laplace, Kronecker": by_laplace(subset="all"),
    "MC dropout": mc_dropout,
    "convert": mean_field,
}


def attempt(name, way, method):
    """Returns "yes", "-" or the first sentence of an error message."""
    model = network(name, way)
    if model is None:
        return "-"
    if not model.trainable_variables:
        return "-"
    data = data_of(name, model)
    try:
        model, posterior = METHODS[method](model, data)
        options = {"samples": 2, "batch_norm_data": data[0], "verbose": 0}
        before = bdl.predict(model, data[0], posterior, **options)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "posterior.bdl")
            posterior.save(path)
            loaded = bdl.posteriors.load(path)
        after = bdl.predict(model, data[0], loaded, **options)
    except (ValueError, TypeError, NotImplementedError, KeyError) as error:
        return " ".join(str(error).split()).partition(". ")[0]
    if not np.allclose(before.mean, after.mean, atol=1e-5):
        return "the loaded posterior predicts otherwise"
    return "yes"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, default=list(MODELS))
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add("--smoke", action="store_true", help="one model and one method")
    args = parser.parse_args()
    if args.smoke:
        args.models, args.methods = ["GPT-2"], ["VOGN"]
    # Small layers without a rule, and SWAG after few epochs.
    warnings.simplefilter("ignore")
    reasons = []
    print("| network | " + " | ".join(args.methods) + " |")
    print("|---" * (len(args.methods) + 1) + "|")
    for name in args.models:
        for way in WAYS:
            cells = []
            for method in args.methods:
                found = attempt(name, way, method)
                if found not in ("yes", "-"):
                    if found not in reasons:
                        reasons.append(found)
                    found = f"({1 + reasons.index(found)})"
                cells.append(found)
                keras.utils.clear_session()
            if set(cells) != {"-"}:
                title = name if way == "whole" else f"{name}, {way}"
                print(f"| {title} | {' | '.join(cells)} |", flush=True)
    for number, reason in enumerate(reasons, 1):
        print(f"({number}) {reason}")


if __name__ == "__main__":
    main()
