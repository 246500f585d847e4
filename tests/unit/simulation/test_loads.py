"""Loads: who works how long before which call."""

import numpy as np
import pytest

from pycollectives.simulation import workload


def make(name, ranks=4, calls=6, work=1.0, skew=0.5, seed=3):
    return workload.make(name, ranks=ranks, calls=calls, work=work, skew=skew, seed=seed)


@pytest.mark.parametrize("name", workload.LOADS)
def test_every_load_has_the_shape_and_repeats_with_its_seed(name):
    load = make(name)
    assert load.shape == (4, 6)
    assert load.dtype == np.float64
    assert (load > 0).all()
    assert load.flags.writeable
    np.testing.assert_array_equal(load, make(name))


def test_linear():
    assert make("linear")[:, 0].tolist() == [1.5, 2.0, 2.5, 3.0]


def test_rotating():
    load = make("rotating")
    assert np.argmax(load, axis=0).tolist() == [0, 1, 2, 3, 0, 1]
    assert load.sum() == 4 * 6 + 6 * 0.5


def test_one_late_rank_per_call():
    load = make("one-late", calls=400)
    assert ((load == 1.5).sum(axis=0) == 1).all()
    assert (load == 1.5).sum(axis=1).min() > 60


def test_one_slow_rank():
    assert make("one-slow").sum(axis=1).tolist() == [6, 6, 6, 9]


def test_each_rank_is_slow_now_and_then():
    load = make("random-slow", ranks=8, calls=4000, skew=0.0)
    assert set(load.ravel()) == {1.0, 6.0}
    assert (load == 6.0).mean() == pytest.approx(1 / 8, rel=0.05)
    assert set(workload.make("random-slow", ranks=2, calls=9, work=1.0, skew=0.0, seed=1, factor=3.0).ravel()) == {1, 3}


def test_each_rank_has_a_speed_of_its_own_that_stays():
    load = make("speeds", ranks=400, skew=0.25)
    assert (load == load[:, :1]).all()
    assert 1.25 <= load.min() < load.max() <= 1.75
    assert load.mean() == pytest.approx(1.5, rel=0.02)
    with pytest.raises(ValueError, match=r"most >= 1, got 0\.5"):
        workload.make("speeds", ranks=2, calls=2, work=1.0, skew=0.0, seed=1, most=0.5)


def test_every_rank_is_late_by_turns():
    load = make("shifting")
    assert sorted(load[:, 0]) == sorted(load[:, 5]) == [1.125, 1.25, 1.375, 1.5]
    assert (load[:, 0] != load[:, 1]).all()


def test_random_loads_have_the_mean_they_say():
    assert make("lognormal", calls=20_000).mean() == pytest.approx(1.0, rel=0.02)
    assert make("cloud", calls=20_000).mean() == pytest.approx(1.5, rel=0.02)


@pytest.mark.parametrize(
    "wrong", [{"name": "odd"}, {"ranks": 0}, {"calls": 0}, {"work": -1}, {"skew": -1}, {"name": "lognormal", "work": 0}]
)
def test_refused(wrong):
    with pytest.raises(ValueError, match="load"):
        make(**{"name": "equal", **wrong})


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("0.1,0.2\n0.3,0.4\n0.5,0.6\n", [[0.1, 0.3, 0.5, 0.1], [0.2, 0.4, 0.6, 0.2]]),
        ("0.1\n0.3\n", [[0.1, 0.3, 0.1, 0.3]] * 2),
        ("# seconds\n" + "0.1,0.2\n" * 9, [[0.1] * 4, [0.2] * 4]),
    ],
)
def test_traces_have_a_column_per_rank_or_one_and_lines_that_repeat(tmp_path, text, load):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    made = workload.from_csv(path, ranks=2, calls=4)
    assert made.tolist() == load
    assert made.flags.c_contiguous
    assert made.flags.writeable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.1,x,0.1\n", "expected numbers separated by commas"),
        ("0.1,0.2,0.3\n0.3\n", "expected numbers separated by commas"),
        ("-1\n", "expected finite times >= 0"),
        ("nan\n", "expected finite times >= 0"),
        ("", "expected a line per call, got an empty file"),
        ("# seconds\n\n", "expected a line per call, got an empty file"),
        ("0.1,0.2\n", r"expected one column per rank \(3\) or one for all ranks, got 2 columns"),
        ("0.1,0.2,0.3,0.4\n", r"expected one column per rank \(3\) or one for all ranks, got 4 columns"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_traces_refused(tmp_path, text, said):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"trace\.csv: {said}"):
        workload.from_csv(path, ranks=3, calls=1)


def test_several_late_ranks():
    load = workload.make("one-late", ranks=8, calls=400, work=1.0, skew=0.5, seed=3, late=3)
    assert ((load == 1.5).sum(axis=0) == 3).all()
    assert (load == 1.5).sum(axis=1).min() > 100


def test_a_rank_that_is_slower_by_a_factor():
    load = workload.make("one-slow", ranks=3, calls=2, work=2.0, skew=0.5, seed=0, factor=5, rank=1)
    assert load.tolist() == [[2, 2], [10.5, 10.5], [2, 2]]


def test_a_cloud_has_the_batches_of_the_paper():
    load = workload.make("cloud", ranks=8, calls=50_000, work=0.399, skew=0.055, seed=0)
    assert load.min() >= 0.399
    assert load.max() == pytest.approx(1.892)
    assert load.mean() == pytest.approx(0.454, abs=0.003)
    assert load.std() == pytest.approx(0.116, rel=0.02)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("equal", {"late": 1}, "unknown option 'late'; its options are work, skew$"),
        ("one-slow", {"late": 1}, "unknown option 'late'; its options are work, skew, factor, rank$"),
        ("one-late", {"late": 9}, "expected late from 0 to 4"),
        ("one-late", {"late": 1.5}, "late: expected a whole number, got 1.5"),
        ("one-slow", {"rank": 4}, "expected factor > 0 and rank below 4"),
        ("one-slow", {"rank": 0.5}, "rank: expected a whole number, got 0.5"),
        ("one-slow", {"factor": 0}, "expected factor > 0 and rank below 4"),
    ],
)
def test_options_refused(name, options, said):
    with pytest.raises(ValueError, match=f"load '{name}': {said}"):
        workload.make(name, ranks=4, calls=1, work=1, skew=1, seed=0, **options)
