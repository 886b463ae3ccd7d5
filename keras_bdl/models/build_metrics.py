"""Makes the metrics that a model was compiled with by their names."""

import keras


def build_metrics(model, dataset):
    """Builds the compiled metrics of a model before a step is traced.

    Keras makes them in the first step, and with them variables, which has that
    step traced twice: with a deep network a good part of the wait for the first
    epoch. Models of several outputs, which keep a loss of each besides, and
    those whose outputs are not known before a call are left to do so.

    Args:
        model: A compiled model.
        dataset: The `tf.data.Dataset` that its steps will see.
    """
    metrics = getattr(model, "_compile_metrics", None)
    outputs = getattr(model, "outputs", None) or ()  # a subclass has none
    if metrics is None or metrics.built or len(outputs) != 1:
        return
    _, y, _ = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
    shape = getattr(y, "shape", None)
    if shape is not None and shape.rank is not None:
        metrics.build(keras.KerasTensor(shape, y.dtype.name), outputs[0])
