"""What methods do on one rank, and what they say of themselves."""

import numpy as np
import pytest

from pycollectives import policies, simulation
from pycollectives.train.registry import Choice
from pycollectives.train.synchronizers import METHODS


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("synchronous", {"policy": policies.Full()}),
        ("ddp", {"policy": policies.Full()}),
        ("eager", {"policy": policies.Majority(7)}),
        ("eager,policy=solo,late=drop,missed=sum", {"policy": policies.Solo(), "late": "drop"}),
        ("eager,policy=any-of:2,seed=3,max_staleness=4", {"policy": policies.AnyOf(2, 3), "max_staleness": 4}),
        ("m-synchronous,m=3", {"policy": policies.Quorum(3), "late": "drop"}),
        ("ripples", None),
    ],
)
def test_the_simulator_has_the_rounds_of_methods_that_have_rounds(said, expected):
    choice = Choice.parse(said)
    arguments = METHODS.find(choice).simulated(**{"seed": 7, **choice.options})
    assert arguments == expected
    if arguments is not None:
        simulation.simulate(np.ones((4, 2)), nbytes=4, algorithm="recursive_doubling", **arguments)
