"""Models that need NumPy only; those that need PyTorch are in `pycollectives.train.torch_models`."""
