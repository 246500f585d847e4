"""SLURM jobs: cluster profiles, batch scripts and their submission, as `python -m pycollectives slurm`.

`profiles` reads a cluster's settings from TOML. `scripts` renders the batch script of a job from a Jinja2 template.
`submission` submits the script with sbatch. `ranks` runs first in a job and checks that all its ranks have started. The
templates and the built-in profiles are in the folder `slurm` of the source tree, installed as `pycollectives_slurm`.
"""
