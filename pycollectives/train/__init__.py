"""Thin training loops: one loop, one synchronizer per method, models and data sets to try them on.

`python -m pycollectives train` runs them.
"""
