"""TEMP."""
from keras import ops
def average_outputs(loss, outputs):
    return ops.mean(ops.stack(outputs), 0)
