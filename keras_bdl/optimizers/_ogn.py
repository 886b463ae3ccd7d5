"""Online Gauss-Newton."""

import keras

from keras_bdl.optimizers._vogn import VOGN


@keras.saving.register_keras_serializable(package="keras_bdl")
class OGN(VOGN):
    """Online Gauss-Newton: `VOGN` without noise in the weights.

    Use OGN first if `VOGN` does not train. Both classes take the same
    arguments: tune the arguments with `OGN`, then change the class to `VOGN`.

    Training uses the means, `w = mu`. Everything else is as in `VOGN`.

    `keras_bdl.predict` uses the means, the network that was trained. Samples
    are often much worse, because training used the means alone. To use samples
    anyway, pass `posterior=keras_bdl.posterior_of(model)` to
    `keras_bdl.predict`. For `model.evaluate` and `model.predict`, compile with
    `samples`.

    Example:

    ```python
    model.compile(keras_bdl.OGN(prior_precision=50.0), loss=loss)
    model.fit(x, y, epochs=2, verbose=0)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), eq. 3
    """

    noisy_training = False
