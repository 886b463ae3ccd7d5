"""Weight-normalised convolution of images."""

import keras

from keras_bdl.layers.weight_norm import WeightNorm


@keras.saving.register_keras_serializable(package="keras_bdl")
class WeightNormConv2D(WeightNorm, keras.layers.Conv2D):
    """Convolution of images with directions and scales for weights.

    The weights of each filter are a vector theta, made of a direction vector
    phi_d and a number phi_s, its scale:

        theta = phi_s phi_d / ||phi_d||                                   (1)

    The layer has the weights `direction` (height, width, input channels of a
    group, filters), `scale` (filters) and `bias`; `kernel` is computed from
    them in every call. The output does not depend on the length of phi_d,
    only the step size does: a sampler needs a prior that holds it, such as
    `UnitDirection`. Every direction starts with length 1.

    Args:
        filters: Number of output channels.
        kernel_size: Height and width of the filters, one number or two.
        scale_initializer: See `WeightNormDense`. Defaults to `"ones"`.
        direction_regularizer: See `WeightNormDense`. Defaults to `None`.
        scale_regularizer: See `WeightNormDense`. Defaults to `None`.
        **kwargs: As of `keras.layers.Conv2D`: `strides`, `padding`,
            `dilation_rate`, `groups` and others, with the exceptions of
            `WeightNormDense`.

    Example:

    ```python
    layer = keras_bdl.layers.WeightNormConv2D(
        32,
        3,
        padding="same",
        direction_regularizer=keras_bdl.priors.UnitDirection(),
        scale_regularizer=keras_bdl.priors.Laplace(5.0),
    )
    ```

    Reference:
        - Salimans and Kingma, [Weight Normalization](
          https://arxiv.org/abs/1602.07868), eq. 2
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), eq. 12
    """
