from keras_bdl.applications.architecture import Architecture
from keras_bdl.applications.preact_resnet import PreActResNet
from keras_bdl.applications.preact_resnet import PreActResNet18
from keras_bdl.applications.resnet_plus_plus import ResNetPlusPlus
from keras_bdl.applications.resnet_plus_plus import ResNetPlusPlus50
from keras_bdl.applications.resnet_plus_plus import ResNetPlusPlus56

__all__ = [
    "Architecture",
    "PreActResNet",
    "PreActResNet18",
    "ResNetPlusPlus",
    "ResNetPlusPlus50",
    "ResNetPlusPlus56",
]
