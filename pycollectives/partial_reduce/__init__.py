"""The partial reduce, and P-Reduce in groups that the application names (Ripples)."""
