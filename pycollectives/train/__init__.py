"""A thin training loop, a synchronizer for each method, and models and data sets on which to try the methods.

`python -m pycollectives train` runs them.
"""
