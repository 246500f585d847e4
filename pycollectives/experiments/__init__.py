"""Experiments of the papers, scaled to one machine: what is run, against which baseline, and what the paper measured.

Each is a file of catalogue/. `python -m pycollectives experiments` lists, runs and plots them.
"""
