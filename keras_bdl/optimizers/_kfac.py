"""K-FAC, Kronecker-factored approximate curvature."""

import keras

from keras_bdl.optimizers._noisy_kfac import NoisyKFAC


@keras.saving.register_keras_serializable(package="keras_bdl")
class KFAC(NoisyKFAC):
    """K-FAC: `NoisyKFAC` without noise in the weights.

    Use K-FAC first if `NoisyKFAC` does not train. Both classes take the same
    arguments: tune the arguments with `KFAC`, then change the class to
    `NoisyKFAC`.

    Training uses the means, `W = M`. Everything else is as in `NoisyKFAC`.
    `keras_bdl.predict` uses the means, as for `OGN`. The curvature is the
    empirical Fisher information, which uses the targets of the data.
    `keras_bdl.fit_laplace` instead averages over targets that the trained
    model predicts.

    Example:

    ```python
    model.compile(keras_bdl.KFAC(prior_precision=50.0), loss=loss)
    model.fit(x, y, epochs=2, verbose=0)
    ```

    Reference:
        - Martens and Grosse, [Optimizing Neural Networks with
          Kronecker-factored Approximate Curvature](
          https://arxiv.org/abs/1503.05671)
        - Grosse and Martens, [A Kronecker-factored approximate Fisher matrix
          for convolution layers](https://arxiv.org/abs/1602.01407)
    """

    noisy_training = False
