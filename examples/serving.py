"""Train, export, and answer requests in a process without `keras_bdl`.

    python examples/serving.py [--smoke] [--out DIR]

The script trains a classifier of digits, fits a Laplace approximation and
exports the network averaged over 30 posterior samples as a SavedModel. A fresh
process loads the file with TensorFlow alone and answers requests of one image,
with probabilities and mutual information. It prints percentiles of the time
that an answer takes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

SERVER = '''
"""Needs TensorFlow and NumPy only."""

import sys
import time

import numpy as np
import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
images = np.load(sys.argv[2])
answer = model.signatures["serving_default"]
(name,) = answer.structured_input_signature[1]
milliseconds = []
warm_up = images[:10]
for image in np.concatenate([warm_up, images]):
    start = time.perf_counter()
    reply = answer(**{name: tf.constant(image[None])})
    reply = {key: value.numpy()[0] for key, value in reply.items()}
    milliseconds.append(1000 * (time.perf_counter() - start))
assert "keras_bdl" not in sys.modules
print("last answer: digit", reply["mean"].argmax(), end=", ")
print(f"mutual information {reply['mutual_information']:.3f}")
for percent in (50, 90, 99):
    value = np.percentile(milliseconds[len(warm_up) :], percent)
    print(f"{percent} % within {value:.2f} ms")
'''


def train(smoke):
    """Returns a trained network, its posterior and images of digits."""
    import keras

    import keras_bdl as bdl

    keras.utils.set_random_seed(0)
    data = bdl.datasets.load("digits", classes=range(10), seed=0)
    x, y = data.train
    layers = keras.layers
    model = bdl.Sequential(
        [
            keras.Input(data.input_shape),
            layers.Conv2D(4 if smoke else 32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(8 if smoke else 64, activation="relu"),
            layers.Dense(data.num_classes),
        ]
    )
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(x, y, epochs=1 if smoke else 30, verbose=0)
    posterior = bdl.fit_laplace(model, (x, y), verbose=0)
    return model, posterior, data.test[0]


def main():
    from keras_bdl.extend import StoragePath

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    parser.add_argument("--out", type=StoragePath, help="folder of the export")
    args = parser.parse_args()
    if args.out is not None and args.out.is_remote:
        parser.error(f"--out must be local, the server runs there: {args.out}")
    import numpy as np

    import keras_bdl as bdl

    model, posterior, images = train(args.smoke)
    predictive = bdl.PosteriorPredictive(
        model,
        posterior,
        samples=2 if args.smoke else 30,
        outputs=("mean", "mutual_information"),
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(args.out or folder)
        out.mkdir(parents=True, exist_ok=True)
        predictive.export(str(out / "model" / "1"), verbose=False)
        np.save(out / "images.npy", images[: 3 if args.smoke else 300])
        (out / "server.py").write_text(SERVER)
        print(f"exported to {out / 'model' / '1'}")
        result = subprocess.run(
            [sys.executable, "server.py", "model/1", "images.npy"],
            cwd=out,
            capture_output=True,
            text=True,
        )
    if result.returncode:
        sys.exit(result.stderr)
    print(result.stdout, end="")


if __name__ == "__main__":
    main()
