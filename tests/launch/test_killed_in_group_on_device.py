"""A rank is killed in groups of weights on a (simulated) device: all others are told who, soon, in every shape."""

import pytest
from devices import needs_cuda
from killer import WITH_FAULT_TOLERANCE, check_told
from launcher import mpirun

pytestmark = needs_cuda


@pytest.mark.parametrize("seed", range(6))
def test_the_others_are_told_who_died(tmp_path, seed):
    victim = (0, 2)[seed // 3]
    options = {"DEATH": str(tmp_path / "d")}
    job = mpirun(4, "killed_in_group_on_device.py", victim, seed, limit=60, options=WITH_FAULT_TOLERANCE, **options)
    check_told(job, victim)
