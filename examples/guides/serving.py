# %% [markdown]
# # From training to serving
#
# How does a posterior get from a training that may be killed into a server
# without `keras_bdl`? You resume a run, save a posterior, and export
# the network with its posterior samples as one program. A fresh process then
# answers requests with TensorFlow alone.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 3 if SMOKE else 30
SAMPLES = 2 if SMOKE else 30
folder = Path(tempfile.mkdtemp())

digits = bdl.datasets.load("digits", classes=range(10))
x, y = digits.train
x_test, y_test = digits.test
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network():
    return bdl.Sequential(
        [
            keras.Input(digits.input_shape),
            keras.layers.Conv2D(4 if SMOKE else 32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(8 if SMOKE else 64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


# %% [markdown]
# ## A training that survives being killed
#
# Add a `Checkpoint`. At the end of every epoch, it writes one file with the
# weights, the optimizer, the seeds, the history and the state of the other
# callbacks. It replaces the file in one piece, so a kill at any moment leaves a
# whole file. The directory may be in a bucket, `"gs://bucket/run"`. After a
# kill, start the same command again. Here, the first run ends early, as if it
# were killed, and the second one continues:


# %%
def run(epochs):
    keras.utils.set_random_seed(0)
    model = network()
    model.compile(bdl.IVON(), loss)
    checkpoint = bdl.callbacks.Checkpoint(folder / "run")
    history = model.fit(x, y, epochs=epochs, callbacks=[checkpoint], verbose=0)
    return model, history


run(EPOCHS // 3)
model, history = run(EPOCHS)
plt.plot(history.epoch, history.history["loss"], "o-", markersize=3)
plt.axvline(EPOCHS // 3 - 0.5, color="0.4", linestyle="--")
plt.gca().set(xlabel="epoch", ylabel="loss", title="killed and resumed")

# %% [markdown]
# The second run has the weights, the logs and the posterior that one run
# without a break would have. This is exact if the order of the data is a
# function of seed and epoch: arrays after `set_random_seed`, data without a
# shuffle, `bdl.datasets.EpochCounter().batches(...)` and the data sets of
# `bdl.datasets.load`, both with their counter as a callback. `shuffle` of
# `tf.data` begins with its first order again. The run is then as good, but not
# the same, and `Checkpoint` warns.
#
# - On a machine that may be taken away, the directory must be on a disk that
#   stays, such as a network disk or a mounted bucket. Start the same command on
#   the next machine.
# - Put `Checkpoint` last in the list, and give each `fit` its own directory.
# - To start over, delete the directory. To train longer, raise `epochs`.
# - A changed loss or hyper-parameter raises an error. One change only warns: if
#   `learning_rate` is another number, the run keeps the old one.
# - `every=1000, unit="step"` also writes after every 1,000 steps.
# - `Checkpoint(callbacks=[...])` also saves callbacks of Keras that are listed
#   earlier.
#
# **Early stopping.** The callback of Keras restores the weights of the best
# epoch. `bdl.callbacks.EarlyStopping("val_loss", patience=10,
# restore_best_weights=True)` restores the posterior, too.
#
# ## Save
#
# The `.keras` file holds the network and the posterior of its optimizer, its
# objective or its layers. The program that loads the file must import
# `keras_bdl` first.

# %%
model.save(folder / "digits.keras")
model = keras.models.load_model(folder / "digits.keras")

# %% [markdown]
# Callbacks and `fit_laplace` hold their posterior outside the model. Save it in
# a file of its own. The file has no code in it and is loaded without `pickle`:

# %%
laplace = bdl.fit_laplace(model, (x, y), verbose=0)
laplace.save(folder / "laplace.bdl")
posterior = bdl.posteriors.load(folder / "laplace.bdl")

# %% [markdown]
# ## One program
#
# `PosteriorPredictive` is a Keras model that holds the network and its
# posterior samples. One call answers with probabilities and uncertainty.
# `outputs` takes the names of [the quantities of a prediction](predictions.md).

# %%
predictive = bdl.PosteriorPredictive(
    model, posterior, samples=SAMPLES, outputs=("mean", "mutual_information")
)
answer = predictive(x_test[:3])
print(answer["mean"].numpy().argmax(-1), y_test[:3])
print(answer["mutual_information"].numpy().round(4))

# %% [markdown]
# All samples run in one graph, and the part of the network before the first
# uncertain weight runs once: with a posterior of the last layer, an answer
# costs little more than one forward pass. It is a Keras model like any other:
# `predictive.save("served.keras")`, `predictive.predict(x)`. With
# `outputs="mean"`, it returns that tensor alone, in the shape of the output of
# the network, and `compile` and `evaluate` work as usual.
# `weights_dtype="bfloat16"` halves the size of the samples.
#
# ## Export
#
# The export is a SavedModel. Version numbers are folders, as TensorFlow Serving
# expects.

# %%
predictive.export(str(folder / "model" / "1"), verbose=False)

# %% [markdown]
# ## A fresh process
#
# The server imports TensorFlow and NumPy, and nothing else. It answers one
# image at a time, as requests come:

# %%
SERVER = """
import sys
import time

import numpy as np
import tensorflow as tf

served = tf.saved_model.load(sys.argv[1])
milliseconds, doubts = [], []
for image in np.load(sys.argv[2]):
    start = time.perf_counter()
    answer = served.serve(image[None])
    doubts.append(answer["mutual_information"].numpy()[0])
    milliseconds.append(1000 * (time.perf_counter() - start))
assert "keras_bdl" not in sys.modules
print(f"half of the answers within {np.median(milliseconds):.1f} ms")
print(f"99 % of the answers within {np.percentile(milliseconds, 99):.1f} ms")
np.save(sys.argv[3], doubts)
"""
turned = bdl.datasets.corrupt(x_test, "rotation", 5)
np.save(folder / "images.npy", np.concatenate([x_test[:200], turned[:200]]))
(folder / "server.py").write_text(SERVER)
if not SMOKE:
    command = [
        sys.executable,
        "server.py",
        "model/1",
        "images.npy",
        "doubt.npy",
    ]
    done = subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    )
    print(done.stdout)
    upright, rotated = np.split(np.load(folder / "doubt.npy"), 2)
    bins = np.linspace(0, max(upright.max(), rotated.max()), 20)
    plt.figure()
    plt.hist(upright, bins, alpha=0.6, label="upright digits")
    plt.hist(rotated, bins, alpha=0.6, label="digits turned by 60 degrees")
    plt.gca().set(xlabel="mutual information", ylabel="answers")
    plt.legend(frameon=False)

# %% [markdown]
# The server doubts digits that are turned: the uncertainty has arrived. What it
# does with the doubt is [a decision](decisions.py). [Sets with a
# guarantee](conformal.md#save-load-export) can be part of the exported model.
#
# ## What next
#
# - Phones, browsers, other runtimes: [LiteRT and ONNX, TensorFlow
#   Serving](saving_and_export.md), and what each of them can run.
# - A web server with `keras_bdl`: `bdl.predict` does not change the model, so
#   several threads may share the model, also while another thread trains it.
# - A script with arguments and percentiles: `examples/serving.py`.
