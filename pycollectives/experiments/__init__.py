"""Experiments of the papers, scaled to one machine, each with its baseline and the paper's measurement.

Each experiment is a file in catalogue/. `python -m pycollectives experiments` lists, runs and plots them.
"""
