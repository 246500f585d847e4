"""A recurrent network that classifies sequences of different lengths (eager-SGD, section 7.3).

Hochreiter, Schmidhuber: Long short-term memory, Neural Computation 9(8), 1997.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from ..values import Size  # noqa: TC001 - the registry evaluates it
from .network import TorchModel

if TYPE_CHECKING:
    import torch

    from ..datasets.base import Dataset


class LSTM(TorchModel):
    """One layer of `hidden` cells, whose state after the last step of a sequence is classified.

    A batch is padded features of shape (n, longest, features), lengths and labels. Padding is not computed, so a
    batch costs as many steps as its longest sequence.
    """

    def __init__(self, dataset: Dataset, *, hidden: Size = 128, seed: int = 0) -> None:
        dataset.check_inputs("lstm", "padded sequences, lengths and labels", (3, 1, 1))
        features = dataset.train[0].shape[2]
        super().__init__(lambda: Classifier(features, hidden, dataset.classes), seed)


class Classifier(nn.Module):
    """An LSTM layer, then a linear layer."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, padded: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the classes' logits. PyTorch expects lengths on the host, even if sequences are on a device."""
        packed = pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        logits: torch.Tensor = self.linear(last[-1])
        return logits
