"""Models that need PyTorch, an extra: `pip install 'pycollectives[torch]'`."""
