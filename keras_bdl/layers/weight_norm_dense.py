"""Weight-normalised dense layer."""

import keras

from keras_bdl.layers.weight_norm import WeightNorm


@keras.saving.register_keras_serializable(package="keras_bdl")
class WeightNormDense(WeightNorm, keras.layers.Dense):
    """Dense layer with directions and scales for weights.

    The weights of each unit are a vector theta, made of a direction vector
    phi_d and a number phi_s, its scale:

        theta = phi_s phi_d / ||phi_d||                                   (1)

    The layer has the weights `direction` (input size, units), `scale`
    (units) and `bias`; `kernel` is computed from them in every call. The
    output does not depend on the length of phi_d, only the step size does: a
    sampler needs a prior that holds it, such as `UnitDirection`. Every
    direction starts with length 1.

    Args:
        units: Size of the output.
        scale_initializer: Initializer of phi_s. Defaults to `"ones"`, which
            keeps the mean square of the inputs.
        direction_regularizer: Prior or other regularizer of phi_d. Defaults
            to `None`.
        scale_regularizer: Prior or other regularizer of phi_s. A
            `GroupLaplace` is taken for a prior of theta: phi_s gets the
            density that follows from it. Defaults to `None`.
        **kwargs: As of `keras.layers.Dense`. Of what `kernel_initializer`
            draws, only the directions count. `kernel_regularizer`,
            `kernel_constraint`, LoRA and quantization need a kernel that is
            a variable and are refused.

    Example:

    ```python
    layer = keras_bdl.layers.WeightNormDense(
        10,
        direction_regularizer=keras_bdl.priors.UnitDirection(),
        scale_regularizer=keras_bdl.priors.Laplace(5.0),
    )
    ```

    Reference:
        - Salimans and Kingma, [Weight Normalization](
          https://arxiv.org/abs/1602.07868), eq. 2, with w = theta, v = phi_d,
          g = phi_s; their initialisation from data is left out: a sampler
          has no first batch
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), eq. 12
    """
