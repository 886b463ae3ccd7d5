from keras_bdl.applications.architecture import Architecture
from keras_bdl.applications.preact_resnet import PreActResNet
from keras_bdl.applications.preact_resnet import PreActResNet18
from keras_bdl.applications.resnet import ResNet
from keras_bdl.applications.resnet import ResNet18
from keras_bdl.applications.resnet_plus_plus import ResNetPlusPlus
from keras_bdl.applications.resnet_plus_plus import ResNetPlusPlus50
from keras_bdl.applications.resnet_plus_plus import ResNetPlusPlus56
from keras_bdl.applications.vgg import VGG16

__all__ = [
    "Architecture",
    "PreActResNet",
    "PreActResNet18",
    "ResNet",
    "ResNet18",
    "ResNetPlusPlus",
    "ResNetPlusPlus50",
    "ResNetPlusPlus56",
    "VGG16",
]
