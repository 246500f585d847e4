"""Jobs for SLURM: cluster profiles, batch scripts and their submission, as `python -m pycollectives slurm`.

`profiles` reads what is particular to a cluster from TOML, `scripts` makes the batch script of a job from a Jinja2
template, `submission` hands it to sbatch, and `ranks` is what a job starts first, to see that all its ranks are there.
The templates and the built-in profiles are the folder `slurm` of the source tree, installed as `pycollectives_slurm`.
"""
