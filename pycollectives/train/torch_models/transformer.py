"""A small transformer that predicts the next character.

Vaswani et al.: Attention is all you need, 2017; normalization before each part as in Radford et al.: Language models
are unsupervised multitask learners (GPT-2), 2019; one table of embeddings for input and output, as in
Press and Wolf: Using the output embedding to improve language models, 2017.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from ..values import Size  # noqa: TC001 - the registry evaluates it
from .network import TorchModel

if TYPE_CHECKING:
    from ..datasets.base import Dataset


class Transformer(TorchModel):
    """`depth` blocks of `width` features and `heads` heads, for pieces of text as long as those in the data.

    A batch is symbols of shape (n, context), and the symbol that follows each of them. Losses and accuracies are per
    symbol.
    """

    def __init__(self, dataset: Dataset, *, width: Size = 64, depth: Size = 2, heads: Size = 4, seed: int = 0) -> None:
        dataset.check_inputs("transformer", "pieces of text and the symbol after each", (2, 2))
        if width % heads:
            raise ValueError(f"model 'transformer': expected a width that is a multiple of {heads} heads, got {width}")
        context = dataset.train[0].shape[1]
        symbols = 1 + max(int(pieces[:].max()) for pieces in (*dataset.train, *dataset.validation))
        super().__init__(lambda: LanguageModel(symbols, context, width, depth, heads), seed)


class LanguageModel(nn.Module):
    """Computes logits of the next symbol, for each symbol of a piece of text."""

    def __init__(self, symbols: int, context: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.symbol = nn.Embedding(symbols, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)
        self.head.weight = self.symbol.weight
        self.apply(_initialize)

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (n, symbols, context), as `cross_entropy` expects them."""
        places = torch.arange(symbols.shape[1], device=symbols.device)
        features = self.blocks(self.symbol(symbols) + self.place(places))
        logits: torch.Tensor = self.head(self.norm(features))
        return logits.transpose(1, 2)


class Block(nn.Module):
    """Causal attention, then a perceptron; each is added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.gather = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map features of shape (n, context, width) to features of the same shape."""
        features = features + self._attention(self.before_attention(features))
        changed: torch.Tensor = features + self.perceptron(features)
        return changed

    def _attention(self, features: torch.Tensor) -> torch.Tensor:
        count, context, width = features.shape
        parts = self.query_key_value(features).view(count, context, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        gathered: torch.Tensor = self.gather(seen.transpose(1, 2).reshape(count, context, width))
        return gathered


def _initialize(module: nn.Module) -> None:
    """Initialize as in GPT-2: weights are normal with standard deviation 0.02, biases are zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
