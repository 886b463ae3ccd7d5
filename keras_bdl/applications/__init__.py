from keras_bdl.applications.architecture import Architecture
from keras_bdl.applications.resnet_plus_plus import ResNetPlusPlus
from keras_bdl.applications.resnet_plus_plus import ResNetPlusPlus50
from keras_bdl.applications.resnet_plus_plus import ResNetPlusPlus56

__all__ = [
    "Architecture",
    "ResNetPlusPlus",
    "ResNetPlusPlus50",
    "ResNetPlusPlus56",
]
