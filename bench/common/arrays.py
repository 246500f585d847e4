"""A benchmark's arrays, in host memory or on CUDA devices. Needs only NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Place:
    """The place of the arrays of all ranks, as tables and records name it."""

    device: str = "cpu"
    name: str = ""
    library: str = "NumPy"
    ranks_per_device: int = 1  # the largest number of ranks that share a device

    def notes(self) -> list[str]:
        """Return lines for the head of a table; none for the host."""
        if self.device == "cpu":
            return []
        shared = "" if self.ranks_per_device == 1 else f"; {self.ranks_per_device} ranks share one"
        return [f"arrays on {self.device} devices: {self.name}, by {self.library}{shared}"]

    def as_json(self) -> dict[str, Any]:
        """Return keys of a record; none for the host."""
        if self.device == "cpu":
            return {}
        return {
            "device": self.device,
            "device_name": self.name,
            "arrays_by": self.library,
            "ranks_per_device": self.ranks_per_device,
        }

    def path(self, path: str) -> str:
        """Return the `path` of the ranks' data, as records and figures name it."""
        return path if self.device == "cpu" else f"{path}, {self.device}"


class Arrays(Protocol):
    @property
    def place(self) -> Place: ...

    def mirror(self, host: NDArray[Any]) -> Any:
        """Return a copy of `host` at this place; on the host, `host` itself."""

    def upload(self, array: Any, host: NDArray[Any]) -> None:
        """Write the values of `host` to its mirror; complete on return."""

    def download(self, array: Any) -> NDArray[Any]:
        """Return the values, on the host."""

    def sample(self, array: Any, places: NDArray[np.int64]) -> NDArray[Any]:
        """Return the values at a few places, on the host."""

    def synchronize(self) -> None:
        """Wait until all queued work on arrays is complete."""


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
