"""Image sets as bytes: CIFAR-10, CIFAR-100 and Tiny ImageNet, read from folders that users bring.

Reading needs numpy alone (Tiny ImageNet's JPEG files also need Pillow). `rows.ImageRows`, and
`augmentation` by which it changes images while a net trains, need torch.
"""

from .readers import Images, ImageSet, read_cifar10, read_cifar100, read_tiny_imagenet

__all__ = ["ImageSet", "Images", "read_cifar10", "read_cifar100", "read_tiny_imagenet"]
