"""Prediction that averages over posterior samples."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import Data
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_verbose
from keras_bdl._data._batches import Batches
from keras_bdl._data._checked_inputs import check_model
from keras_bdl._data._preprocessed import preprocessed
from keras_bdl.distribute._workers import lost_worker_explained
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.prediction._average_options import EXACT_LINKS
from keras_bdl.prediction._average_options import AverageOptions
from keras_bdl.prediction._chosen_draws import chosen_draws
from keras_bdl.prediction._posterior_draws import AUTO
from keras_bdl.prediction._prediction_run import PredictionRun
from keras_bdl.prediction._stateless_call import TRACING


def predict(
    model: keras.Model,
    x: Data,
    posterior: Posterior | None = None,
    *,
    samples: int | str | None = None,
    tolerance: float = 0.01,
    seed: int = 0,
    batch_size: int | None = None,
    steps: int | None = None,
    batch_norm_data: Data | None = None,
    batch_norm_fraction: float = 1.0,
    task: Any = None,
    from_logits: Any = None,
    noise_stddev: Any = None,
    moments: Callable | None = None,
    keep_samples: bool = False,
    linearized: bool | None = None,
    link: str | None = None,
    on_batch: Callable[[Any], None] | None = None,
    verbose: str | int = "auto",
) -> Any:
    """Predicts with the average over posterior samples.

    Use this function in place of `model.predict` for probabilities or means
    together with their uncertainty. The function computes

        p(y | x) = 1/S sum_s p(y | x, w_s),   w_s drawn from the posterior (1)

    A posterior sample is one function for the whole data set. The forward pass
    is traced once for all samples. The function reads batched data once,
    part by part, and predicts each part with all samples. So memory does not
    grow with `samples`. The model does not change, so several threads may
    predict with one model, also while another thread trains it.

    Args:
        model: A Keras model. The compiled loss defines whether the outputs are
            logits, probabilities or means. Without such a loss, give `task`
            and `from_logits`.
        x: Arrays, data frames or sparse matrices (several inputs as a list or
            dictionary), a batched `tf.data.Dataset`, a
            `keras.utils.PyDataset` or a generator of batches. Labels that
            come with the batches of the last three kinds become
            `Prediction.y`. A model with a preprocessor, such as a task of
            KerasHub, takes raw inputs such as strings, as in its own
            `predict`. For inputs that are preprocessed already, set
            `model.preprocessor = None`.
        posterior: A `keras_bdl.extend.Posterior`. Defaults to `None`: the
            posterior of the compiled optimizer, the objective or the layers,
            or else the trained weights alone. `OGN` and `KFAC` train the
            weights without noise, so `None` predicts with these weights; pass
            `posterior=keras_bdl.posterior_of(model)` to use their posterior.
        samples: S, the number of posterior samples. Defaults to `None`: the
            number in `compile(samples=...)` if it is positive, or else every
            member of an `Ensemble` once, or else 30. Without a posterior, the
            trained weights are the only sample.
            `"auto"` draws 20 samples at a time, until the standard error of
            the mean is at most `tolerance` for every example and class, and
            1000 at most. An `Ensemble` then counts every member once.
        tolerance: Largest `Prediction.standard_error` with `samples="auto"`:
            in units of probability, or of the targets in a regression.
            Defaults to `0.01`.
        seed: Selects the samples. Defaults to `0`.
        batch_size: Batch size for arrays. Defaults to `None`, 32.
        steps: Number of batches to read. Defaults to `None`, all.
        batch_norm_data: Training inputs, or `(inputs, labels)`. A sample
            without its own BatchNorm statistics gets statistics that are
            estimated on these inputs, as in
            `keras_bdl.prediction.reestimate_batch_norm`. Arrays are read in
            batches of 32; pass a `tf.data.Dataset` for another batch size.
            Defaults to `None`.
        batch_norm_fraction: Fraction of `batch_norm_data` to use. Defaults to
            `1.0`.
        task: `"classification"`, `"binary"` (each entry of the output is a
            Bernoulli distribution) or `"regression"`. A model with several
            outputs takes one value for all, or values in the structure of
            the outputs. Defaults to `None`: the compiled loss decides.
        from_logits: Whether a classifier returns logits. A model with several
            outputs takes values as in `task`. Defaults to `None`: the compiled
            loss decides.
        noise_stddev: Standard deviation of the observations in a regression:
            a number or an array that broadcasts to the mean. A model with
            several outputs takes such values in the structure of the outputs.
            Defaults to `None`: the noise of the compiled loss, which the losses
            of `keras_bdl.likelihoods` and the Poisson loss have.
        moments: Function for a network that predicts its own noise. The
            function maps the outputs of the model to a pair `(mean, variance)`,
            with `keras.ops`. Defaults to `None`: for each output, the method
            `moments` of its compiled loss, if the loss is one of
            `keras_bdl.likelihoods`.
        keep_samples: Whether to keep the output of every sample in
            `Prediction.samples`. Defaults to `False`.
        linearized: Whether to make the network linear in its weights, around
            the mean m of the posterior: each sample w predicts
            `f(x, m) + J (w - m)` with the Jacobian J. Samples of `Laplace`
            are only valid in this form, because its covariance comes from
            the same linear network. Needs a posterior with a mean. Defaults
            to `None`: `True` for `Laplace`, `False` for all others.
        link: How to use the exact Gaussian of the outputs of a linearised
            network, in place of samples of the weights. Needs a posterior of
            independent weights or of Kronecker factors, and is cheap for a last
            layer or for few outputs. `"identity"` is exact for a regression
            with known noise. Noise that the network predicts is that of m.
            `"probit"` gives a classifier approximate probabilities in closed
            form: its `mutual_information` and `stddev` are NaN.
            `"monte_carlo"` draws the outputs `samples` times, at almost no
            cost. Each example has its own distribution: the samples do not
            show how examples depend on each other. Defaults to `None`: samples
            of the weights.
        on_batch: Function that gets the prediction of each batch in turn, such
            as the method `add` of `keras_bdl.evaluation.SegmentationScores`.
            Nothing else is kept, so memory does not grow with the data, and
            `predict` returns `None`. `noise_stddev` must then fit each batch.
            Defaults to `None`.
        verbose: `0` for silence, `1` for a progress bar, `2` for one line.
            Defaults to `"auto"`, `1`.

    Returns:
        A `ClassificationPrediction` or `RegressionPrediction`. A model with
        several outputs gives one for each output, in the same structure. With
        `on_batch`, `None`. The mask that layers pass on to an output becomes
        `Prediction.mask`, and the `ignore_class` of the compiled loss that of
        the prediction: reports and sets leave such entries out.

    Example:

    ```python
    prediction = keras_bdl.predict(model, x_test, posterior)
    prediction.mean, prediction.entropy, prediction.mutual_information
    ```
    """
    check_model(model)
    check_number("tolerance", tolerance, above=0.0)
    check_bool("keep_samples", keep_samples)
    if on_batch is not None and not callable(on_batch):
        raise ValueError(
            "`on_batch` must be a function of a prediction, or `None`. "
            f"Received: on_batch={on_batch!r}"
        )
    if samples == AUTO and keep_samples:
        raise ValueError(
            "`keep_samples` needs a number of `samples`: parts of the data "
            'may need different numbers with `samples="auto"`. '
            "Received: samples='auto', keep_samples=True"
        )
    if link in EXACT_LINKS and keep_samples:
        raise ValueError(
            f"`keep_samples` must be `False` with `link={link!r}`, which is a "
            f"closed form without samples. Received: link={link!r}, "
            "keep_samples=True"
        )
    options = AverageOptions(
        task=task,
        from_logits=from_logits,
        moments=moments,
        keep_samples=keep_samples,
        link=link,
    )
    _check_noise(noise_stddev, options.moments)
    x, batch_size = preprocessed(model, x, batch_size)
    batches = Batches(x, batch_size=batch_size, steps=steps, pad=True)
    chunks = batches.chunks(None if on_batch is None else _SMALL)
    first = next(chunks)
    _build(model, first)
    parts = itertools.chain([first], chunks)
    del first  # another reference would keep this large part in memory
    draws = chosen_draws(
        model,
        posterior,
        samples=samples,
        seed=seed,
        batch_norm_data=batch_norm_data,
        batch_norm_fraction=batch_norm_fraction,
        linearized=linearized,
        link=link,
    )
    run = PredictionRun(
        draws,
        dataclasses.replace(options, linearized=draws.linearized),
        noise_stddev=noise_stddev,
        progress=_progress(batches, draws, verbose),
        tolerance=tolerance if draws.in_steps else None,
    )
    with lost_worker_explained(model.distribute_strategy):
        for chunk in parts:
            run.add(chunk)
            if on_batch is not None:
                for prediction in run.take():
                    on_batch(prediction)
    run.finish()
    if verbose == 2:
        print(f"keras_bdl.predict: {run.stacks}")
    return run.prediction() if on_batch is None else None


# Bytes of the inputs that are predicted before `on_batch` gets the result.
_SMALL = 2**24


def _check_noise(noise_stddev, moments):
    if noise_stddev is None:
        return
    if moments is not None:
        raise ValueError(
            "`noise_stddev` must be `None` if `moments` returns the noise. "
            f"Received: noise_stddev={noise_stddev}, moments={moments}"
        )
    for noise in keras.tree.flatten(noise_stddev):
        if noise is None:
            continue
        noise = np.asarray(noise)
        real = noise.dtype.kind in "fiu"
        if not (real and np.all(np.isfinite(noise)) and np.all(noise >= 0)):
            raise ValueError(
                "`noise_stddev` must be one or more finite numbers, not "
                f"negative. Received: noise_stddev={noise_stddev!r}"
            )


def _build(model, chunk):
    if model.built:
        return
    batch = next(iter(chunk))
    with TRACING, model.distribute_strategy.scope():
        if not model.built:
            model(keras.tree.map_structure(lambda x: x[:1], batch.inputs))


def _progress(batches, draws, verbose):
    total = batches.num_batches
    return keras.utils.Progbar(
        None if total is None or draws.in_steps else total * len(draws),
        verbose=check_verbose(verbose),
    )
