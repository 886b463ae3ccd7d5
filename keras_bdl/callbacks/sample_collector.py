"""Keeps the samples that a sampler visits."""

import itertools
import os

import numpy as np

from keras_bdl.callbacks.chain_drift import warn_of_drift
from keras_bdl.callbacks.running_evaluation import RunningEvaluation
from keras_bdl.callbacks.sample_files import put_old_samples_aside
from keras_bdl.callbacks.sample_files import remove_sample
from keras_bdl.callbacks.sample_files import sample_path
from keras_bdl.callbacks.sample_files import write_sample
from keras_bdl.callbacks.stateful_callback import StatefulCallback
from keras_bdl.callbacks.weight_collector import check_integer
from keras_bdl.data.dataset_size import check_loss
from keras_bdl.distribute.workers import weights_of_first_replica
from keras_bdl.loss_scaling import inner_optimizer
from keras_bdl.optimizers.sampler import Sampler
from keras_bdl.posteriors.ensemble import Ensemble
from keras_bdl.posteriors.structure import Structure
from keras_bdl.saving.state_file import read_state


class SampleCollector(StatefulCallback):
    """Takes the weights as a sample at the end of every cycle.

    The samples are those of `keras_bdl.ATMC`, `SGNHT`, `SGHMC` or `SGLD`; with
    another optimizer they are snapshots and no posterior. With a sampler the
    loss must be the mean negative log-likelihood of the examples: a sum is
    refused, also of a plain `keras.Model`. Training itself is not changed.
    Steps are counted as updates of the weights: those that loss scaling skips
    do not count.

    When training ends, a warning says if the chain still drifts: if the second
    half of the samples lies about as far from the first as the samples of a
    half spread. A chain that has hardly left its start does so, and its
    samples are no posterior. At least eight samples are needed, and about 16
    for a model of few weights; fewer cannot be told from chance.

    Args:
        every: A schedule with `cycle_steps`, such as
            `keras_bdl.schedules.CyclicalCosine`: the last state of each of
            its cycles is taken. Or a number of epochs or steps, see `unit`.
        burn_in_epochs: Epochs at the begin of which nothing is taken.
            Defaults to `0`.
        max_samples: How many are kept, the latest ones. Defaults to `None`,
            all.
        directory: Where samples are kept, one file each, instead of in
            memory; the posterior reads them when it is used, and fails once
            `max_samples` has dropped one of them. A new run moves samples of
            an old one into a folder `old_1` inside, and warns; a run that a
            `Checkpoint` resumes goes on with them. Of several workers one
            writes, and all must see the directory. Defaults to `None`, in
            memory.
        unit: `"epoch"` or `"step"`, what a number in `every` counts.
            Defaults to `"epoch"`.
        validation_data: `(x, y)`, or a data set of batches of these in a
            fixed order, on which the ensemble of the samples so far is
            evaluated whenever one joins: every epoch logs
            `posterior_samples`, `posterior_accuracy` and `posterior_nll` (in
            regression, `posterior_rmse` and, where the loss tells the noise,
            `posterior_nll`), NaN before the first sample. Put the collector
            before `CSVLogger` and `TensorBoard`. Defaults to `None`.
        validation_batch_size: For arrays. Defaults to `None`, 32.

    Example:

    ```python
    cycle = keras_bdl.schedules.CyclicalCosine(1e-3, cycle_steps=50 * 391)
    model.compile(keras_bdl.ATMC(cycle, dataset_size=50_000), loss=loss)
    samples = keras_bdl.callbacks.SampleCollector(cycle, burn_in_epochs=150)
    model.fit(train, epochs=1000, callbacks=[samples])
    keras_bdl.predict(model, x_test, posterior=samples.posterior)
    ```
    """

    def __init__(
        self,
        every,
        burn_in_epochs: int = 0,
        max_samples: int | None = None,
        directory: str | None = None,
        unit: str = "epoch",
        validation_data=None,
        validation_batch_size: int | None = None,
    ):
        super().__init__()
        if unit not in ("epoch", "step"):
            raise ValueError(
                f'`unit` must be "epoch" or "step". Received: unit={unit!r}'
            )
        if hasattr(every, "cycle_steps"):
            every, unit = every.cycle_steps, "step"
        self.every = check_integer("every", every, 1)
        self.unit = unit
        self.burn_in_epochs = check_integer("burn_in_epochs", burn_in_epochs, 0)
        if max_samples is not None:
            max_samples = check_integer("max_samples", max_samples, 1)
        self.max_samples = max_samples
        self.directory = None if directory is None else os.fspath(directory)
        self._evaluation = None
        if validation_data is not None:
            self._evaluation = RunningEvaluation(
                validation_data, validation_batch_size
            )
        self._samples = []  # weights, or the file that has them
        self._on_disk = {}  # the arrays of a file, which tell if it is another
        self._num_taken = 0
        self._cycle = None  # how many have ended, by the counter of steps
        self._names = None
        self._first_possible_batch = None
        self._warned_of_drift = False
        self._is_new = True  # until an epoch begins, or a state is set

    @property
    def num_collected(self):
        """How many samples there are."""
        return len(self._samples)

    @property
    def posterior(self):
        """An `Ensemble` of the samples taken so far."""
        if not self._samples:
            raise RuntimeError(
                "`SampleCollector` has taken no sample. Train longer, or for "
                "shorter cycles or burn-in. Received: "
                f"every={self.every}, unit={self.unit!r}, "
                f"burn_in_epochs={self.burn_in_epochs}"
            )
        members = [self._read(sample) for sample in self._samples]
        return Ensemble(members, self._names)

    def on_train_begin(self, logs=None):
        """Refuses a training that would miss the end of a cycle."""
        # Of this optimizer; a checkpoint that resumes sets them after this.
        self._first_possible_batch = self._cycle = None
        self._check_length()
        at_once, steps = self.model.steps_per_execution, self.params["steps"]
        uneven = steps is not None and steps % at_once
        if self.unit == "step" and (self.every % at_once or uneven):
            raise ValueError(
                "`steps_per_execution` must divide the steps of a cycle and of "
                "an epoch, since Keras shows the weights only between "
                f"executions. Received: steps_per_execution={at_once}, "
                f"cycle of {self.every} steps, epoch of {steps} steps"
            )
        self.keep_to_one_model()
        self.refuse_frozen_model()
        check_loss(self.model, [inner_optimizer(self.model)])
        if self._evaluation is not None:
            self._evaluation.begin(self.model)
        if self.directory is not None:
            os.makedirs(self.directory, exist_ok=True)

    def on_epoch_begin(self, epoch, logs=None):
        """Makes room for a new run; finds out when the next cycle ends."""
        if self._is_new and self.directory is not None:
            strategy = self.model.distribute_strategy
            put_old_samples_aside(self.directory, strategy)
        self._is_new = False
        if self.unit == "epoch" or epoch < self.burn_in_epochs:
            return
        iterations = self._iterations()
        if self._cycle is None:
            self._cycle = iterations // self.every
        # The counter lies on the device, and reading it would wait for it.
        self._first_possible_batch = self._missing(iterations) - 1

    def on_train_batch_end(self, batch, logs=None):
        """Takes a sample if a cycle ended, and compares N with the data."""
        self.compare_dataset_size(batch)
        first = self._first_possible_batch
        if self.skipping or first is None or batch < first:
            return
        iterations = self._iterations()
        if iterations // self.every > self._cycle:
            self._cycle = iterations // self.every
            self._collect()
        # Not exact where loss scaling skips steps: then it is asked again.
        self._first_possible_batch = batch + self._missing(iterations)

    def on_epoch_end(self, epoch, logs=None):
        """Takes a sample if an epoch is due, and logs the evaluation."""
        since = epoch + 1 - self.burn_in_epochs
        if self.unit == "epoch" and since > 0 and since % self.every == 0:
            self._collect()
        if self._evaluation is not None and logs is not None:
            logs.update(self._evaluated())

    def on_train_end(self, logs=None):
        """Warns once of a chain that still drifts."""
        is_chain = isinstance(inner_optimizer(self.model), Sampler)
        if self._warned_of_drift or not is_chain:
            return
        trained = [v.trainable for v in self.model.weights]
        self._warned_of_drift = warn_of_drift(
            len(self._samples),
            lambda i: itertools.compress(self._read(self._samples[i]), trained),
        )

    def get_state(self):
        """Returns all samples, or the files that have them."""
        return {
            "settings": [self.every, self.unit, self.burn_in_epochs],
            "samples": list(self._samples),
            "num_taken": self._num_taken,
            "cycle": self._cycle,
            "names": self._names,
        }

    def check_state(self, state):
        """Refuses a state that was written with other settings."""
        ours = [self.every, self.unit, self.burn_in_epochs]
        if state["settings"] != ours:
            raise ValueError(
                "`SampleCollector` must have the settings with which its state "
                "was written: every, unit, burn_in_epochs = "
                f"{state['settings']}. Received: {ours}"
            )

    def set_state(self, state):
        """Goes on from what `get_state` returned."""
        self.check_state(state)
        self._is_new = False
        self._on_disk = {}
        self._samples = list(state["samples"])
        if self._evaluation is not None:
            self._evaluation.forget()
        self._num_taken = state["num_taken"]
        self._cycle = state["cycle"]
        if self._first_possible_batch is not None:
            self._first_possible_batch = 0  # within an epoch: ask at once
        self._names = state["names"]

    def _check_length(self):
        """Refuses a `fit` in which no cycle ends."""
        epochs, steps = self.params["epochs"], self.params["steps"]
        if self._samples or (self.unit == "step" and steps is None):
            return
        if self.unit == "epoch":
            most = (epochs - self.burn_in_epochs) // self.every
        else:
            ended = [
                e * steps // self.every for e in (self.burn_in_epochs, epochs)
            ]
            most = ended[1] - ended[0]
        if most > 0:
            return
        raise ValueError(
            "`SampleCollector` would take nothing: `burn_in_epochs` must be "
            "less than the number of epochs, and a cycle must end in those "
            f"left. Received: burn_in_epochs={self.burn_in_epochs}, "
            f"epochs={epochs}, every={self.every}, unit={self.unit!r}, "
            f"steps={steps}"
        )

    def _iterations(self):
        return int(self.model.optimizer.iterations.numpy())

    def _missing(self, iterations):
        """Returns the steps to the end of the cycle, all of them at its end."""
        return self.every - iterations % self.every

    def _collect(self):
        weights = weights_of_first_replica(self.model)
        self._names = Structure.of(self.model.weights).names
        if self.directory is None:
            sample = [np.array(w) for w in weights]
        else:
            sample = sample_path(self.directory, self._num_taken)
            write_sample(sample, weights, self.model.distribute_strategy)
            self._read(sample)
        self._samples.append(sample)
        self._num_taken += 1
        while self.max_samples and len(self._samples) > self.max_samples:
            dropped = self._samples.pop(0)
            if self._evaluation is not None:
                self._evaluation.forget()
            if not isinstance(dropped, str):
                continue
            self._on_disk.pop(dropped, None)
            remove_sample(dropped, self.model.distribute_strategy)

    def _evaluated(self):
        """Returns the logs; samples not known yet are predicted first."""
        evaluation = self._evaluation
        for sample in self._samples[evaluation.num_samples :]:
            evaluation.add(self.model, self._read(sample), self._names)
        return evaluation.logs()

    def _read(self, sample):
        if not isinstance(sample, str):
            return sample
        if sample not in self._on_disk:  # of a state
            self._on_disk[sample] = read_state(sample, lazy=True)["weights"]
        return self._on_disk[sample]
