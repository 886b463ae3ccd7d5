from keras_bdl.continual.posterior_becomes_prior import posterior_becomes_prior

__all__ = ["posterior_becomes_prior"]
