"""Online Gauss-Newton."""

import keras

from keras_bdl.optimizers.vogn import VOGN


@keras.saving.register_keras_serializable(package="keras_bdl")
class OGN(VOGN):
    """Online Gauss-Newton: VOGN that looks at the means alone.

    Training has no noise, `w = mu`. Everything else is as in `VOGN`. Where
    VOGN does not train, tune OGN first: it takes the same arguments.

    `keras_bdl.predict` uses the means, the network that was trained. Draws
    are often much worse, because training never tried weights beside the
    means. To use them anyway, give `posterior=keras_bdl.posterior_of(model)` or
    compile with `samples` for `evaluate` and `predict` of the model.

    Args:
        learning_rate: Float or schedule. Defaults to `1e-3`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            counted by `keras_bdl.Model.fit`.
        prior_precision: See `VOGN`, as all below. Defaults to `1.0`.
        beta_1: Decay of the momentum. Defaults to `0.9`.
        beta_2: Decay of the curvature. Defaults to `0.999`.
        temperature: tau, float or schedule. Defaults to `1.0`.
        augmentation_factor: rho. Defaults to `1.0`.
        damping: Makes steps shorter. Defaults to `1e-3`.
        initial_curvature: s at the beginning, or `"first_batch"`. Defaults to
            `"first_batch"`.
        exclude_from_inference: Names of what has no prior and no variance.
            Defaults to `("BatchNormalization",)`.
        curvature_every: Steps from one curvature to the next. Defaults to
            `1`.
        fallback: Whether layers without a rule are differentiated example by
            example. Defaults to `False`.
        seed: Seed of the draws of evaluation. Defaults to `0`.
        name: Name of the optimizer. Defaults to `"ogn"`.
        **kwargs: See `VOGN`.

    Example:

    ```python
    model.compile(keras_bdl.OGN(prior_precision=50.0), loss=loss)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), eq. 3
    """

    noisy_training = False

    def __init__(
        self,
        learning_rate=1e-3,
        dataset_size: int | None = None,
        prior_precision: float = 1.0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        temperature=1.0,
        augmentation_factor: float = 1.0,
        damping: float = 1e-3,
        initial_curvature="first_batch",
        exclude_from_inference=("BatchNormalization",),
        curvature_every: int = 1,
        fallback: bool = False,
        seed: int = 0,
        name: str = "ogn",
        **kwargs,
    ):
        super().__init__(
            learning_rate,
            dataset_size,
            prior_precision,
            beta_1,
            beta_2,
            temperature,
            augmentation_factor,
            damping,
            initial_curvature,
            exclude_from_inference,
            curvature_every,
            fallback,
            seed,
            name,
            **kwargs,
        )
