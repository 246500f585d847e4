"""Where a benchmark's arrays are: in memory of the host, or on CUDA devices. Needs no more than NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Place:
    """Where the arrays of all ranks are, as tables and records say it."""

    device: str = "cpu"
    name: str = ""
    library: str = "NumPy"
    ranks_per_device: int = 1  # the most that share one

    def notes(self) -> list[str]:
        """Lines for the head of a table: none for the host."""
        if self.device == "cpu":
            return []
        shared = "" if self.ranks_per_device == 1 else f"; {self.ranks_per_device} ranks share one"
        return [f"arrays on {self.device} devices: {self.name}, by {self.library}{shared}"]

    def as_json(self) -> dict[str, Any]:
        """Keys of a record; none for the host."""
        if self.device == "cpu":
            return {}
        return {
            "device": self.device,
            "device_name": self.name,
            "arrays_by": self.library,
            "ranks_per_device": self.ranks_per_device,
        }

    def path(self, path: str) -> str:
        """`path` of the ranks' data, as records and figures name it."""
        return path if self.device == "cpu" else f"{path}, {self.device}"


class Arrays(Protocol):
    @property
    def place(self) -> Place: ...

    def mirror(self, host: NDArray[Any]) -> Any:
        """An array of the length and type of `host`, with its values; on the host, `host` itself."""

    def upload(self, array: Any, host: NDArray[Any]) -> None:
        """Write the values of `host` to its mirror; done when it returns."""

    def download(self, array: Any) -> NDArray[Any]:
        """The values, on the host."""

    def sample(self, array: Any, places: NDArray[np.int64]) -> NDArray[Any]:
        """The values at a few places, on the host."""

    def synchronize(self) -> None:
        """Wait until everything that was queued for arrays is done."""


class HostArrays:
    """NumPy's."""

    place = Place()

    def mirror(self, host: NDArray[Any]) -> NDArray[Any]:
        return host

    def upload(self, array: NDArray[Any], host: NDArray[Any]) -> None:
        assert array is host

    def download(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def sample(self, array: NDArray[Any], places: NDArray[np.int64]) -> NDArray[Any]:
        sampled: NDArray[Any] = array[places]
        return sampled

    def synchronize(self) -> None:
        pass


HOST = HostArrays()
