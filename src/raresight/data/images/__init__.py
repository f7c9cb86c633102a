"""Image sets as bytes: CIFAR-10, CIFAR-100 and Tiny ImageNet, read from folders that users bring.

Reading needs numpy alone (Tiny ImageNet's JPEG files also need Pillow). What changes images while a net
trains is in `raresight.data.images.augmentation` and needs torch.
"""

from raresight.data.images.cifar import read_cifar10, read_cifar100
from raresight.data.images.sets import Images, ImageSet
from raresight.data.images.tiny_imagenet import read_tiny_imagenet

__all__ = ["ImageSet", "Images", "read_cifar10", "read_cifar100", "read_tiny_imagenet"]
