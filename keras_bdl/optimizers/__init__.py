from keras_bdl.optimizers.atmc import ATMC
from keras_bdl.optimizers.ivon import IVON
from keras_bdl.optimizers.ogn import OGN
from keras_bdl.optimizers.sghmc import SGHMC
from keras_bdl.optimizers.sgld import SGLD
from keras_bdl.optimizers.sgnht import SGNHT
from keras_bdl.optimizers.vogn import VOGN

__all__ = ["ATMC", "IVON", "OGN", "SGHMC", "SGLD", "SGNHT", "VOGN"]
