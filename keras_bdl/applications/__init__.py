"""Networks of published papers, without distributions of the weights.

`keras_bdl.convert` makes a network of Keras layers Bayesian. `ResNetPlusPlus`
has weight-normalised layers, for samplers. All weights start at random. Single
Bayesian layers are in `keras_bdl.layers`.
"""

from keras_bdl.applications._densenet import DenseNet
from keras_bdl.applications._densenet import DenseNet161
from keras_bdl.applications._plain_networks import VGG16
from keras_bdl.applications._plain_networks import VGG16BN
from keras_bdl.applications._plain_networks import AlexNet
from keras_bdl.applications._plain_networks import LeNet5
from keras_bdl.applications._plain_networks import MultiHeadMLP
from keras_bdl.applications._preact_resnet import PreActResNet
from keras_bdl.applications._preact_resnet import PreActResNet18
from keras_bdl.applications._preact_resnet import PreResNet
from keras_bdl.applications._preact_resnet import WideResNet
from keras_bdl.applications._preact_resnet import WideResNet28x10
from keras_bdl.applications._resnet import ResNet
from keras_bdl.applications._resnet import ResNet18
from keras_bdl.applications._resnet_plus_plus import ResNetPlusPlus
from keras_bdl.applications._resnet_plus_plus import ResNetPlusPlus50
from keras_bdl.applications._resnet_plus_plus import ResNetPlusPlus56

__all__ = [
    "AlexNet",
    "DenseNet",
    "DenseNet161",
    "LeNet5",
    "MultiHeadMLP",
    "PreActResNet",
    "PreActResNet18",
    "PreResNet",
    "ResNet",
    "ResNet18",
    "ResNetPlusPlus",
    "ResNetPlusPlus50",
    "ResNetPlusPlus56",
    "VGG16",
    "VGG16BN",
    "WideResNet",
    "WideResNet28x10",
]
