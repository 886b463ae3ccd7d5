from keras_bdl.laplace.fit_laplace import fit_laplace

__all__ = ["fit_laplace"]
