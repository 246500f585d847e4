"""What the records of one run say of the bars: each a ratio of what was measured to what could be, in that run."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
EARLY_S = 5e-3


def bars(benchmarks: list[Record]) -> list[Record]:
    """Each with its value, the least value wanted, and how it is made; none, where what it needs was not measured."""
    found = [bar for record in benchmarks if "on_device_s" in record for bar in _of_devices(record)]
    return found + [bar for record in benchmarks if record.get("bench") == "skew" for bar in _of_skew(record)]


def _of_devices(record: Record) -> list[Record]:
    ranks = record["ranks"]
    copy, host, device = (_best(record, name) for name in ("on_device", "to_host", "to_device"))
    floor = 3 * ranks * copy  # seconds of a copy of one rank's values: read and written
    link = ranks * max(host, device)  # both directions at once
    given = []
    if "p_reduce_s" in record:
        given += [
            ("P-Reduce over the floor of device copies", floor / record["p_reduce_s"], 0.28,
             "floor: every rank's values copied in, read and written by the fold, and copied out, at the best rate at "
             "which values were copied on the device"),
            ("staging with mpi4py over P-Reduce", record["staged_s"] / record["p_reduce_s"], 8.0,
             "staging: a copy to pinned memory, MPI_Allreduce, a copy back, a division"),
        ]  # fmt: skip
    if "staged_allreduce_s" in record:
        given += [
            ("the staged path over the bound of the host link", link / record["staged_allreduce_s"], 0.4,
             "bound: every rank's values to the host and back, both directions at once, at the best rates of copies of "
             "pinned memory; path: Full(), with every rank a node"),
        ]  # fmt: skip
    return [_bar(record, what, value, least, how) for what, value, least, how in given]


def _best(record: Record, name: str) -> float:
    """Seconds that the values of one rank take, alone or among those of all ranks."""
    return min(record[f"{name}_alone_s"], record[f"{name}_s"] / record["ranks"])


def _of_skew(record: Record) -> list[Record]:
    if record["policy"] != "solo" or not record.get("early_us"):
        return []
    how = (
        f"{EARLY_S * 1e3:g} ms over the longest call of a rank that was early, of {record['bytes']} bytes, while one "
        f"rank sleeps for {record['skew_us'] / 1e3:g} ms"
    )
    return [_bar(record, "early callers of solo allreduce", EARLY_S * 1e6 / record["early_us"]["max"], 1.0, how)]


def _bar(record: Record, what: str, value: float, least: float, how: str) -> Record:
    return {
        "bar": what, "ranks": record["ranks"], "bytes": record["bytes"], "value": round(value, 4), "at_least": least,
        "reached": value >= least, "how": how,
    }  # fmt: skip
