from keras_bdl.laplace.fitting import fit

__all__ = ["fit"]
