"""Prediction with posterior draws."""

import keras
import numpy as np

from keras_bdl.data.batches import Batches
from keras_bdl.data.checked_inputs import check_model
from keras_bdl.distribute.workers import lost_worker_explained
from keras_bdl.prediction.batch_norm import batch_norm_batches
from keras_bdl.prediction.draws import Draws
from keras_bdl.prediction.draws import find_posterior
from keras_bdl.prediction.forward import ForwardOptions
from keras_bdl.prediction.prediction_run import PredictionRun
from keras_bdl.prediction.stateless_call import TRACING


def predict(
    model,
    x,
    posterior=None,
    samples: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    steps: int | None = None,
    batch_norm_data=None,
    batch_norm_fraction: float = 1.0,
    task=None,
    from_logits=None,
    noise_stddev=None,
    moments=None,
    keep_samples: bool = False,
    verbose="auto",
):
    """Predicts with the average over posterior draws.

        p(y | x) = 1/S sum_s p(y | x, w_s),   w_s drawn from the posterior (1)

    A draw is one function for the whole data set, and the forward pass is
    traced once for all. Data that do not lie in memory are read once, part by
    part, and every part is shown to all draws; memory does not grow with
    `samples`. The model is not changed: threads may predict with one model,
    also while it is trained. Each of them gets what it would get alone.

    Args:
        model: A Keras model. The compiled loss tells what its outputs mean;
            without one, `task` and `from_logits` do.
        x: Arrays (several inputs as a list or dictionary), a batched
            `tf.data.Dataset`, a `keras.utils.PyDataset` or a generator of
            batches. Labels found in the last three become `Prediction.y`.
        posterior: A `keras_bdl.posteriors.Posterior`. Defaults to `None`: the
            one of the compiled optimizer or objective, or of the layers;
            otherwise the network as it is, in one pass. `OGN` and `KFAC`
            train the network as it is, so give their posterior to use it:
            `posterior=model.optimizer.posterior(model)`.
        samples: S, the number of draws. Defaults to `None`: every member of
            an `Ensemble` once, 30 draws of any other posterior, one of the
            network as it is.
        seed: Selects the draws. Defaults to `0`.
        batch_size: For arrays. Defaults to `None`, 32.
        steps: How many batches to read. Defaults to `None`, all.
        batch_norm_data: Training inputs, or `(inputs, labels)`, on which
            BatchNorm statistics are estimated again for every draw that has
            none of its own, see `reestimate_batch_norm`. Arrays are read in
            batches of 32; give a `tf.data.Dataset` with the batches of the
            training for the statistics that it had. Defaults to `None`.
        batch_norm_fraction: The part of it to use. Defaults to `1.0`.
        task: `"classification"`, `"binary"` (every entry of the output a
            Bernoulli distribution) or `"regression"`; for several outputs,
            perhaps in the structure of the outputs. Defaults to `None`, as
            the compiled loss says.
        from_logits: Whether a classifier gives logits, as `task`. Defaults to
            `None`, as the compiled loss says.
        noise_stddev: Standard deviation of the observations in regression: a
            number, an array that broadcasts to the mean, or these in the
            structure of the outputs. Defaults to `None`, unknown.
        moments: For a network that predicts its own noise: a function, made
            of `keras.ops`, from all that the model returns to one pair (mean,
            variance). Defaults to `None`, as the compiled loss says, if it is
            one of `keras_bdl.likelihoods`.
        keep_samples: Whether to keep every draw in `Prediction.samples`.
            Defaults to `False`.
        verbose: `0` for silence, `1` for a progress bar, `2` for one line.
            Defaults to `"auto"`, `1`.

    Returns:
        A `ClassificationPrediction` or `RegressionPrediction`; for a model
        with several outputs, these in the structure of the outputs.

    Example:

    ```python
    prediction = keras_bdl.predict(model, x_test, posterior=swag.posterior)
    prediction.mean, prediction.mutual_information
    ```
    """
    check_model(model)
    if moments is None and task is None and noise_stddev is None:
        # A loss such as `keras_bdl.likelihoods.Gaussian` knows the noise.
        moments = getattr(getattr(model, "loss", None), "moments", None)
    _check_moments(moments)
    _check_noise(noise_stddev, moments)
    batches = Batches(x, batch_size, steps, pad=True)
    if batch_norm_data is not None:
        batch_norm_data = batch_norm_batches(
            batch_norm_data,
            batch_norm_fraction,
            # Not `batch_size`: the statistics depend on theirs.
            batch_size=None,
            prefix="batch_norm_",
        )
    elif batch_norm_fraction != 1.0:
        raise ValueError(
            "`batch_norm_fraction` must be left out where there is no "
            "`batch_norm_data` to take a part of. "
            f"Received: batch_norm_fraction={batch_norm_fraction!r}, "
            "batch_norm_data=None"
        )
    chunks = batches.chunks()
    chunk = next(chunks)
    _build(model, chunk)
    posterior = find_posterior(model, posterior)
    draws = Draws(model, posterior, samples, seed, batch_norm_data)
    run = PredictionRun(
        draws,
        ForwardOptions(task, from_logits, moments),
        noise_stddev,
        keep_samples,
        _progress(batches, draws, verbose),
    )
    with lost_worker_explained(model.distribute_strategy):
        while chunk is not None:
            run.add(chunk)
            chunk = next(chunks, None)
    return run.finish()


def _check_moments(moments):
    if moments is not None and not callable(moments):
        raise ValueError(
            "`moments` must be a function from the model's outputs to a pair "
            f"(mean, variance), or `None`. Received: moments={moments!r}"
        )


def _check_noise(noise_stddev, moments):
    if noise_stddev is None:
        return
    if moments is not None:
        raise ValueError(
            "`noise_stddev` must be `None` where `moments` tells the noise. "
            f"Received: noise_stddev={noise_stddev}, moments={moments}"
        )
    for noise in keras.tree.flatten(noise_stddev):
        if noise is None:
            continue
        noise = np.asarray(noise)
        real = noise.dtype.kind in "fiu"
        if not (real and np.all(np.isfinite(noise)) and np.all(noise >= 0)):
            raise ValueError(
                "`noise_stddev` must be a number, or numbers, finite and not "
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
    if verbose not in ("auto", 0, 1, 2):
        raise ValueError(
            '`verbose` must be `"auto"`, `0`, `1` or `2`. '
            f"Received: verbose={verbose!r}"
        )
    total = batches.num_batches
    return keras.utils.Progbar(
        None if total is None else total * len(draws),
        verbose=1 if verbose == "auto" else verbose,
    )
