"""Models that need PyTorch, which the extra `torch` installs."""
