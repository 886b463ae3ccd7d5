# %% [markdown]
# # Many devices: GPUs, machines, TPUs
#
# How do you train on several devices, and what happens if the run is killed? At
# the end you have a network with a posterior that was trained on two devices,
# and a run that was stopped in the middle and went on as if nothing had
# happened.
#
# You need no GPU here. TensorFlow can split a CPU into two *logical* devices,
# and the program is the one that you would start on two GPUs. The split must
# come before TensorFlow computes anything. On a machine with GPUs, leave it
# out.

# %%
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf
from matplotlib import pyplot as plt

import keras_bdl as bdl

SMOKE = "--smoke" in sys.argv
EPOCHS = 4 if SMOKE else 20

cpu = tf.config.list_physical_devices("CPU")[0]
if tf.config.get_logical_device_configuration(cpu) is None:
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )

# %% [markdown]
# ## One line more
#
# Make the model and the optimizer under a strategy. The rest of the program
# stays as it is: `fit`, callbacks, `bdl.predict`.
#
# `bdl.distribute.strategy` takes a word. `"mirrored"` is all GPUs of this
# machine, or its logical CPUs. `"multi_worker"` is several machines, `"tpu"` a
# TPU. `"auto"`, the default, finds out.

# %%
keras.utils.set_random_seed(0)
digits = bdl.datasets.load("digits")
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
strategy = bdl.distribute.strategy("mirrored")
print(strategy.num_replicas_in_sync, "devices")


def network(optimizer):
    """Returns a compiled network, made under the strategy."""
    with strategy.scope():
        model = bdl.Sequential(
            [
                keras.Input(digits.input_shape),
                keras.layers.Flatten(),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(digits.num_classes),
            ]
        )
        model.compile(optimizer(), loss)
    return model


model = network(bdl.IVON)
model.fit(*digits.train, batch_size=64, epochs=EPOCHS, verbose=0)
known = bdl.predict(model, digits.test[0], verbose=0)
unknown = bdl.predict(model, digits.ood["held_out_classes"], verbose=0)
accuracy = np.mean(known.predicted_classes == digits.test[1])
print(f"accuracy on known digits {accuracy:.3f}")
for name, p in {"known": known, "unknown": unknown}.items():
    doubt = p.mutual_information.mean()
    print(f"mean mutual information, {name} digits: {doubt:.3f}")

# %% [markdown]
# - The batch size is that of all devices together: each device gets 32 of the
#   64 images.
# - A step takes the mean over all examples, also if the last batch is smaller.
# - Each device draws its own weights. Two devices average two posterior samples
#   in a step, so the gradient has less noise than on one device.
# - All devices hold the same posterior afterwards.
#
# A small batch is hard to divide. `sample_replicas` then gives the whole batch
# to several devices, and each draws its own weights:
#
# ```python
# with strategy.scope():
#     model.compile(
#         bdl.IVON(), loss, sample_replicas=strategy.num_replicas_in_sync
#     )
# ```
#
# ## A run that is killed
#
# Long runs die: a machine is taken away, a job ends. `Checkpoint` works on
# several devices as on one: start the same command again, and the run goes on.
# [From training to serving](serving.py#a-training-that-survives-being-killed)
# has the rules.
#
# The next cell is such a command, as a function. It trains with SWAG, whose
# posterior is collected along the way. `Accident` stops the run in the middle
# of an epoch.


# %%
class Accident(keras.callbacks.Callback):
    """Ends the run in the middle of an epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (EPOCHS // 2, 3):
            raise KeyboardInterrupt


def run(directory, *callbacks):
    """Trains a network, or continues its training."""
    keras.utils.set_random_seed(0)
    model = network(lambda: keras.optimizers.SGD(0.05, momentum=0.9))
    swag = bdl.SWAG(start_epoch=1)
    checkpoint = bdl.callbacks.Checkpoint(directory)
    history = model.fit(
        *digits.train,
        batch_size=64,
        epochs=EPOCHS,
        verbose=0,
        callbacks=[swag, *callbacks, checkpoint],  # the checkpoint is last
    )
    return history.history["loss"], swag.posterior


folder = tempfile.mkdtemp()
try:
    run(f"{folder}/killed", Accident())
except KeyboardInterrupt:
    print("The run was stopped.")
continued, posterior = run(f"{folder}/killed")
whole, expected = run(f"{folder}/whole")

same = all(
    np.array_equal(ours, theirs)
    for ours, theirs in zip(posterior.mean(), expected.mean(), strict=True)
)
print(f"{len(continued)} epochs; the posterior is the same: {same}")

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(whole, linewidth=5, alpha=0.3, label="never stopped")
ax.plot(continued, label="stopped and continued")
ax.axvline(EPOCHS // 2, color="black", linestyle=":", label="stopped here")
ax.set(xlabel="epoch", ylabel="loss", yscale="log")
ax.legend(frameon=False)

# %% [markdown]
# ## Several machines
#
# 1. Start the same program on all machines. Each has its own `TF_CONFIG`, an
#    environment variable that lists all machines and the place of this one.
# 2. Begin the program with `keras.utils.set_random_seed(0)` and
#    `bdl.distribute.strategy("multi_worker")`, before TensorFlow computes
#    anything.
# 3. Give `Checkpoint` and `SampleCollector` a directory that all machines see,
#    such as `"gs://bucket/run_1"`. One machine writes the files. Your own
#    files: write them only where `bdl.distribute.is_chief(strategy)` is true,
#    and let the others wait with `bdl.distribute.wait_for_all(strategy)`.
#
# ```python
# # TF_CONFIG='{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]},
# #             "task": {"type": "worker", "index": 0}}'   and index 1
# keras.utils.set_random_seed(0)
# strategy = bdl.distribute.strategy("multi_worker")
# ```
#
# All machines end with the same weights and posteriors. If one dies, the others
# stop and say so. Start the same commands again, and they continue.
#
# On several machines, `fit` of Keras 3.12 to 3.15 fails.
# `strategy("multi_worker")` and `bdl.Model` repair it. For a plain
# `keras.Model` under a strategy of your own, call
# `bdl.distribute.mend_keras()`.
#
# ## TPUs
#
# `bdl.distribute.strategy("tpu")` is the TPU of this machine. A TPU compiles
# the training step with XLA, so all batches must have one size: drop the last
# one, with `drop_remainder=True`. For `evaluate` and validation data,
# `bdl.datasets.padded` fills the last batch up with examples of weight 0, and
# `bdl.predict` does so itself. [The page on TPUs](../../tpu/README.md) has a
# check without a TPU, the command that trains, and how to survive preemption.
# Programs compile for TPUs; none has run on a TPU so far.
#
# ## Next
#
# - [A first posterior](first_posterior.py) and the other guides: each works
#   under a strategy.
# - [From training to serving](serving.py): save the posterior and load it
#   elsewhere.
