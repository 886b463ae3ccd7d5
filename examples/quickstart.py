"""The shortest honest program: train, average, ask, check.

python examples/quickstart.py [--smoke]
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

import keras_bdl as bdl

epochs = 6 if "--smoke" in sys.argv else 40
keras.utils.set_random_seed(0)
digits = bdl.datasets.load("digits")

model = keras.Sequential(
    [
        keras.Input(digits.input_shape),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(digits.num_classes),
    ]
)
model.compile(
    keras.optimizers.SGD(0.05, momentum=0.9),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
swag = bdl.SWAG(start_epoch=epochs // 2)
model.fit(*digits.train, epochs=epochs, verbose=2, callbacks=[swag])

known = bdl.predict(model, digits.test[0], posterior=swag.posterior)
unknown = bdl.predict(
    model, digits.ood["held_out_classes"], posterior=swag.posterior
)
print(bdl.evaluate(known, digits.test[1], ood={"digits 5-9": unknown}))
