"""Models. To add one, write a class, and add a line here. `pycollectives.train.torch_models` has PyTorch models."""

from __future__ import annotations

from ..registry import Registry

__all__ = ["MODELS"]

TORCH = f"{__name__.rpartition('.')[0]}.torch_models"

MODELS = Registry(
    "model",
    {
        "hyperplane": f"{__name__}.hyperplane:Hyperplane",
        "mlp": f"{__name__}.mlp:MLP",
        "mlp-torch": f"{TORCH}.mlp:TorchMLP",
        "cnn": f"{TORCH}.cnn:CNN",
        "resnet32": f"{TORCH}.resnet:ResNet",
        "vgg16": f"{TORCH}.vgg:VGG",
        "lstm": f"{TORCH}.lstm:LSTM",
        "transformer": f"{TORCH}.transformer:Transformer",
    },
)
