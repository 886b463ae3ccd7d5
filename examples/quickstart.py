"""Trains a network on five digits, then predicts these and other digits.

python examples/quickstart.py [--smoke]
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import keras_bdl as bdl

epochs = 6 if "--smoke" in sys.argv else 40
keras.utils.set_random_seed(0)
np.set_printoptions(precision=3, suppress=True)
digits = bdl.datasets.load("digits")

model = bdl.Sequential(
    [
        keras.Input(digits.input_shape),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(digits.num_classes),
    ]
)
model.compile(
    bdl.IVON(), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
model.fit(*digits.train, epochs=epochs, verbose=2)

known = bdl.predict(model, digits.test[0])
unknown = bdl.predict(model, digits.ood["held_out_classes"])
for name, p in {"a known digit": known, "an unknown digit": unknown}.items():
    print(f"The first image of {name}:")
    print("  mean              ", p.mean[0])
    print(f"  entropy            {p.entropy[0]:.3f}")
    print(f"  mutual information {p.mutual_information[0]:.3f}")
for name, p in {"known": known, "unknown": unknown}.items():
    print(f"All {len(p)} images of {name} digits:")
    print(f"  confidence above 0.99    {(p.confidence > 0.99).mean():.1%}")
    print(f"  mean mutual information  {p.mutual_information.mean():.3f}")
print(bdl.evaluate(known, digits.test[1], ood={"digits 5-9": unknown}))
