from keras_bdl.optimizers.atmc import ATMC
from keras_bdl.optimizers.sghmc import SGHMC
from keras_bdl.optimizers.sgld import SGLD
from keras_bdl.optimizers.sgnht import SGNHT
from keras_bdl.optimizers.vogn import VOGN

__all__ = ["ATMC", "SGHMC", "SGLD", "SGNHT", "VOGN"]
