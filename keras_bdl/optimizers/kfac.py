"""K-FAC."""

import keras

from keras_bdl.optimizers.noisy_kfac import NoisyKFAC


@keras.saving.register_keras_serializable(package="keras_bdl")
class KFAC(NoisyKFAC):
    """K-FAC: `NoisyKFAC` that looks at the means alone.

    Training has no noise, `W = M`. Everything else is as in `NoisyKFAC`.
    `keras_bdl.predict` uses the means, as for `OGN`. The curvature is the
    empirical Fisher information, of the targets as they are; for that of
    targets drawn from the trained model, see `keras_bdl.fit_laplace`.

    Args:
        learning_rate: Float or schedule. Defaults to `1e-3`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            counted by `keras_bdl.Model.fit`.
        prior_precision: See `NoisyKFAC`, as all below. Defaults to `1.0`.
        beta_1: Decay of the momentum. Defaults to `0.9`.
        beta_2: Decay of the curvature. Defaults to `0.999`.
        temperature: tau, float or schedule. Defaults to `1.0`.
        augmentation_factor: rho. Defaults to `1.0`.
        damping: Makes steps shorter. Defaults to `1e-3`.
        initial_curvature: That of each weight at the beginning, or
            `"first_batch"`. Defaults to `"first_batch"`.
        exclude_from_inference: Names of what has no prior and no variance.
            Defaults to `("BatchNormalization",)`.
        curvature_every: Steps from one curvature to the next. Defaults to
            `1`.
        update_every: Steps from one decomposition to the next. Defaults to
            `10`.
        fallback: Whether layers without a rule are differentiated example by
            example. Defaults to `False`.
        seed: Seed of the draws of evaluation. Defaults to `0`.
        name: Name of the optimizer. Defaults to `"kfac"`.
        **kwargs: See `NoisyKFAC`.

    Example:

    ```python
    model.compile(keras_bdl.KFAC(prior_precision=50.0), loss=loss)
    ```

    Reference:
        - Martens and Grosse, [Optimizing Neural Networks with
          Kronecker-factored Approximate Curvature](
          https://arxiv.org/abs/1503.05671)
        - Grosse and Martens, [A Kronecker-factored approximate Fisher matrix
          for convolution layers](https://arxiv.org/abs/1602.01407)
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
        update_every: int = 10,
        fallback: bool = False,
        seed: int = 0,
        name: str = "kfac",
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
            update_every,
            fallback,
            seed,
            name,
            **kwargs,
        )
