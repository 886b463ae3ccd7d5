from keras_bdl.priors.laplace import Laplace
from keras_bdl.priors.normal import Normal
from keras_bdl.priors.prior import Prior

__all__ = ["Laplace", "Normal", "Prior"]
