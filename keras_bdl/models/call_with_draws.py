"""The outputs of a model under draws from its posterior."""

from keras_bdl.loss_scaling import inner_optimizer
from keras_bdl.models.layerwise_draws import LayerwiseDraws
from keras_bdl.protocols import DrawsFunctions


def call_with_draws(model, methods, x):
    """Returns the outputs under `model.samples` draws, a list.

    Args:
        model: A `keras_bdl.Model`.
        methods: Its objective and its optimizer, those that it has.
        x: A batch of inputs.
    """
    for method in [*methods, LayerwiseDraws.of(model)]:
        if isinstance(method, DrawsFunctions):
            return [
                method.call_with_draw(model, x, draw)
                for draw in range(model.samples)
            ]
    raise ValueError(
        "`samples` asks for posterior draws in evaluation, and this model has "
        "no posterior of its own: neither its optimizer nor its objective nor "
        "its layers draw weights. Compile with `samples=0`, or call "
        "`keras_bdl.predict(model, x, posterior=...)`. "
        f"Received: samples={model.samples}, "
        f"optimizer={type(inner_optimizer(model)).__name__}"
    )
