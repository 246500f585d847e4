"""Settings from the environment."""

import numpy as np
import pytest

from pycollectives.support.environment import Settings, checked_progress, checked_ranks_per_node, settings
from pycollectives.support.validation import checked_timeout


def test_ranks_per_node():
    assert settings({}).ranks_per_node is None
    assert settings({"PYC_RANKS_PER_NODE": "all"}).ranks_per_node is None
    assert settings({"PYC_RANKS_PER_NODE": "4"}).ranks_per_node == 4
    assert checked_ranks_per_node(np.int64(2)) == 2
    for wrong in (np.int64(0), True, 2.0, None):
        with pytest.raises(ValueError, match="ranks_per_node: expected an integer of at least 1 or 'all', got"):
            checked_ranks_per_node(wrong)
    for wrong in ("0", "-1", "some"):
        with pytest.raises(ValueError, match="PYC_RANKS_PER_NODE: expected an integer of at least 1 or 'all', got"):
            settings({"PYC_RANKS_PER_NODE": wrong})


def test_check():
    assert settings({}).check is False
    assert settings({"PYC_CHECK": ""}).check is False
    assert settings({"PYC_CHECK": "0"}).check is False
    assert settings({"PYC_CHECK": "1"}).check is True
    with pytest.raises(ValueError, match="PYC_CHECK: expected '0' or '1', got 'yes'"):
        settings({"PYC_CHECK": "yes"})


def test_exit_timeout():
    assert settings({}).exit_timeout == 60.0
    assert settings({"PYC_EXIT_TIMEOUT": "2.5"}).exit_timeout == 2.5
    assert settings({"PYC_EXIT_TIMEOUT": "none"}).exit_timeout is None
    with pytest.raises(ValueError, match="PYC_EXIT_TIMEOUT: expected seconds >= 0 or 'none', got 'soon'"):
        settings({"PYC_EXIT_TIMEOUT": "soon"})


def test_stall_warning():
    assert settings({}).stall_warning == 30.0
    assert settings({"PYC_STALL_WARNING": "2.5"}).stall_warning == 2.5
    assert settings({"PYC_STALL_WARNING": "none"}).stall_warning is None
    assert settings({}).straggler_warning is None
    assert settings({"PYC_STRAGGLER_WARNING": "0.25"}).straggler_warning == 0.25


def test_nothing_set():
    assert settings({}) == Settings("thread", None, None)
    assert settings({"PYC_PROGRESS": "", "PYC_TIMEOUT": "", "PYC_TRACE": ""}) == Settings("thread", None, None)


def test_everything_set(tmp_path):
    path = tmp_path / "run.json"
    found = settings({"PYC_PROGRESS": "caller", "PYC_TIMEOUT": "2.5", "PYC_TRACE": str(path)})
    assert found == Settings("caller", 2.5, path)


def test_no_limit():
    assert settings({"PYC_TIMEOUT": "none"}).timeout is None
    assert settings({"PYC_TIMEOUT": "inf"}).timeout is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PYC_PROGRESS", "threads"),
        ("PYC_TIMEOUT", "soon"),
        ("PYC_TIMEOUT", "-1"),
        ("PYC_TIMEOUT", "0"),
        ("PYC_TIMEOUT", "nan"),
        ("PYC_TRACE", "/no/such/folder/run.json"),
        ("PYC_TRACE", "/proc/run.json"),  # no file can be made there
        ("PYC_TRACE", "/" + 300 * "x" + "/run.json"),
        ("PYC_DUMP_DIR", "/proc"),
        ("PYC_DUMP_DIR", "/" + 300 * "x"),
        ("PYC_STALL_WARNING", "0"),
        ("PYC_STRAGGLER_WARNING", "1"),
        ("PYC_STRAGGLER_WARNING", "-0.1"),
        ("PYC_STALL_WARNING", "soon"),
        ("PYC_HEARTBEAT_TIMEOUT", "0.9"),
        ("PYC_HEARTBEAT_TIMEOUT", "nan"),
    ],
)
def test_errors_name_the_variable_and_the_value(variable, value):
    with pytest.raises(ValueError, match=f"{variable}: expected .* got '{value}'"):
        settings({variable: value})


def test_the_process_environment_is_read(monkeypatch):
    monkeypatch.setenv("PYC_TIMEOUT", "7")
    assert settings().timeout == 7.0


def test_arguments():
    assert checked_progress("caller") == "caller"
    with pytest.raises(ValueError, match="progress: expected 'thread' or 'caller', got 'both'"):
        checked_progress("both")
    assert checked_timeout(None) is None
    assert checked_timeout(0) == 0.0
    with pytest.raises(ValueError, match="timeout: expected seconds >= 0 or None, got -1"):
        checked_timeout(-1)
    with pytest.raises(TypeError, match="expected seconds or None, got"):
        checked_timeout([])
