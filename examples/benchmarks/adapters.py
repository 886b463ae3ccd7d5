"""Cost of a training step with adapters (LoRA) on a frozen transformer.

    python examples/benchmarks/adapters.py [--smoke]

A ViT-Tiny with 12 blocks of width 192 and 64 patches is frozen, and query and
value of each block get adapters of rank 4. Prints the time of a step of each
optimizer, as a ratio to a step of Adam in turns with it, and the memory that
the optimizer keeps. Needs the extra `hub`.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from timing import ratio
from timing import show_control

import keras_bdl as bdl

OPTIMIZERS = {
    "VOGN": bdl.VOGN,
    "IVON": bdl.IVON,
    "Noisy K-FAC": bdl.NoisyKFAC,
    "SGNHT": bdl.SGNHT,
}


def vit(args, optimizer):
    """Returns a frozen ViT with adapters and a new head."""
    keras.utils.set_random_seed(0)
    backbone = keras_hub.models.ViTBackbone(
        image_shape=(64, 64, 3),
        patch_size=(8, 8),
        num_layers=1 if args.smoke else 12,
        num_heads=3,
        hidden_dim=6 if args.smoke else 192,
        mlp_dim=12 if args.smoke else 768,
    )
    classifier = keras_hub.models.ViTImageClassifier(
        backbone=backbone, num_classes=10, preprocessor=None
    )
    backbone.enable_lora(4)
    model = bdl.Model(classifier.inputs, classifier.outputs)
    model.compile(
        optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    args = parser.parse_args()
    batch, rounds = (2, 2) if args.smoke else (32, 40)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, 64, 64, 3)).astype("float32")
    data = tf.data.Dataset.from_tensors((x, rng.integers(0, 10, batch)))

    def steps(model):
        batches = iter(data.repeat())
        model.make_train_function()
        return lambda: model.train_function(batches)

    adam = vit(args, "adam")
    trained = sum(int(np.prod(v.shape)) for v in adam.trainable_variables)
    frozen = adam.count_params() - trained
    print(f"{trained:,} weights trained, {frozen:,} frozen, batch {batch}")
    print(f"{'step of':14s}{'/ Adam':>22s}{'MiB kept':>10s}")
    theirs = steps(adam)
    show_control(theirs, rounds)
    optimizers = {"VOGN": bdl.VOGN} if args.smoke else OPTIMIZERS
    for name, optimizer in optimizers.items():
        model = vit(args, optimizer(dataset_size=1000))
        found = ratio(steps(model), theirs, rounds)
        variables = model.optimizer.variables
        kept = sum(v.value.dtype.size * np.prod(v.shape) for v in variables)
        print(f"{name:14s}{found!s:>22}{kept / 2**20:10.2f}", flush=True)


if __name__ == "__main__":
    main()
