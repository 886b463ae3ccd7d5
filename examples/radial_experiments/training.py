"""Noise of the gradient along the training of a small network (figure 7)."""

import keras

import keras_bdl as bdl
from radial_experiments.layout import one_legend
from radial_experiments.layout import text_table
from radial_experiments.settings import BATCH
from radial_experiments.settings import CROSS_ENTROPY
from radial_experiments.settings import KINDS
from radial_experiments.settings import NUMBERS
from radial_experiments.settings import net

LOGGED = ("accuracy", "nll", "kl")


class EpochBar(keras.callbacks.Callback):
    """One progress bar for a whole training."""

    def on_train_begin(self, logs=None):
        self.bar = keras.utils.Progbar(
            self.params["epochs"],
            stateful_metrics=LOGGED,
            unit_name="epoch",
        )

    def on_epoch_end(self, epoch, logs=None):
        values = [(name, float(logs[name])) for name in LOGGED]
        self.bar.update(epoch + 1, values)


def measure(run):
    """Returns the logs of a training by method, and the reports."""
    x, y = run.data.train
    logs, reports = {}, {}
    for kind in KINDS:
        print(f"  {kind}", flush=True)
        keras.utils.set_random_seed(0)
        model = net(run, kind, rho=-6.0)
        model.compile(
            keras.optimizers.Adam(0.01), CROSS_ENTROPY, metrics=["accuracy"]
        )
        noise = bdl.callbacks.GradientVariance(
            (x[:BATCH], y[:BATCH]), every=run.every, samples=run.draws
        )
        logs[kind] = model.fit(
            x,
            y,
            batch_size=BATCH,
            epochs=run.epochs,
            verbose=0,
            callbacks=[noise, EpochBar()],
        ).history
        reports[kind] = noise.reports
    return logs, reports


def table(logs, reports):
    rows = []
    for kind, found in reports.items():
        for epoch, report in found.items():
            if epoch:
                row = [kind, epoch, *(logs[kind][n][epoch - 1] for n in LOGGED)]
                rows.append(row + [report.means[n] for n in NUMBERS])
    return text_table(("method", "epoch", *LOGGED, *NUMBERS), rows)


def draw(logs, reports):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        4, 1, figsize=(6.5, 9), layout="constrained", sharex=True
    )
    styles = bdl.extend.method_styles(KINDS)
    for ax, name, label in (
        (axes[0], "accuracy", "training accuracy"),
        (axes[1], "nll", "NLL of an example"),
        (axes[2], "kl", "KL / N"),
    ):
        bdl.extend.open_axes(ax)
        for kind in KINDS:
            values = logs[kind][name]
            epochs = range(1, len(values) + 1)
            ax.plot(epochs, values, color=styles[kind]["color"], label=kind)
        ax.set_ylabel(label)
    axes[1].set_yscale("log")
    bdl.plots.gradient_variance(reports, ax=axes[3])
    one_legend(figure, axes)
    return figure
