"""A rank is killed whose arrays are on a (simulated) device: all others are told who, soon."""

import pytest
from devices import needs_cuda
from killer import WITH_FAULT_TOLERANCE, check_told
from launcher import mpirun

pytestmark = needs_cuda


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("victim", [0, 2])
def test_the_others_are_told_who_died(tmp_path, victim, seed):
    options = {"DEATH": str(tmp_path / "d")}
    job = mpirun(4, "killed_on_device.py", victim, seed, limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, victim)


@pytest.mark.parametrize("seed", range(2))
def test_the_others_are_told_who_died_and_average_without(tmp_path, seed):
    options = {"DEATH": str(tmp_path / "d")}
    job = mpirun(4, "killed_averaging_on_device.py", 2, seed, limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, 2)
