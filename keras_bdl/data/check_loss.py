"""Checks the loss of a model where a method takes it for a likelihood."""

from keras_bdl.data.tell_dataset_size import dataset_sizes
from keras_bdl.likelihoods.loss_check import check_likelihood


def check_loss(model, methods):
    """Checks the compiled loss if anything of a model asks for N.

    Args:
        model: A compiled Keras model.
        methods: Its objective and its optimizer, those that it has.
    """
    sizes = dataset_sizes(model, methods)
    owners = dict.fromkeys(f"`{size.owner}`" for size in sizes)
    if owners:
        check_likelihood(" and ".join(owners), model)
