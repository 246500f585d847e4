"""The device board on a GPU, among as many processes as are launched; tests/gpu/run.sh launches them.

With several devices, rank r uses device r modulo their number.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from device_processes import WORLD, drive, finish, new_member
from device_ranks import Job, in_groups
from devices import Gpu

from pycollectives.support.native import core

pytestmark = pytest.mark.gpu

JOBS = [Job(), Job("float64", "AVG"), Job("float16"), Job("int32", "AVG"), Job("float64", "MAX"), Job("int64", "PROD")]


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_results_are_those_of_the_host_bit_for_bit(job):
    rng = np.random.default_rng(5)  # the same on all ranks
    groups = [sorted(int(r) for r in rng.permutation(WORLD.size)[: 1 + i % WORLD.size]) for i in range(20)]
    devices = core.cuda_availability()["devices"]
    member = new_member(Gpu(ordinal=WORLD.rank % len(devices)), job, reads=len(groups))
    drive(in_groups(member, groups, job.values(rng, len(groups), WORLD.size)), member)
    finish(member)


def test_there_is_a_device():
    found = core.cuda_availability()
    assert found["reason"] == ""
    assert found["driver_version"] >= 11000
    for number, device in enumerate(found["devices"]):
        assert device["bytes"] > 0
        assert re.fullmatch(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.0", device["pci_bus_id"])
        assert device["why_not_shared"] == ""  # else the tests beside this one cannot pass
        assert device["reaches"][number]
