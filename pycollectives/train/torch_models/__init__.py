"""Models that need PyTorch, the extra `torch`."""
