"""How much memory this process may still take: of the machine, and of every control group that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final

USABLE: Final = 0.5  # of what is available: the rest is for others, for what a transaction takes, and for a move to Spark
_UNLIMITED: Final = 2**60  # bytes; cgroup v1 says "no limit" by a number of this size
# Version of control groups: where its memory is, and the files of limit and use; and what of the use is given back on demand.
_VERSIONS: Final = {
    1: ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
}


def available_memory(root: Path = Path("/")) -> float:
    """Bytes that can be taken without swapping or being killed; infinite where the system does not say."""
    # The smallest bound decides: a container is killed at its own limit, however much the machine has.
    return min([_of_machine(root), *_of_groups(root)])


def _of_machine(root: Path) -> float:
    """Linux knows what it can give, caches included."""
    # In units of 1,024 bytes; unlike MemFree it counts caches that the kernel gives back.
    return _field(root / "proc/meminfo", "MemAvailable:", 1024)


def _of_groups(root: Path) -> Iterator[float]:
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        version = 2 if not controllers else 1 if "memory" in controllers.split(",") else None
        if version is not None:
            top, limit, used, inactive = _VERSIONS[version]
            # A limit of a group holds for those below it. In a container, the path may be that of the host, and the top is ours.
            for group in (Path(path), *Path(path).parents):
                folder = root / top / group.relative_to("/")
                most = _number(folder / limit)
                if most < _UNLIMITED:
                    yield max(most - _number(folder / used, 0.0) + _field(folder / "memory.stat", inactive, 1, 0.0), 0.0)


def _number(file: Path, otherwise: float = inf) -> float:
    """The number in a file; `max` means that there is none."""
    text = next(iter(_lines(file)), "")
    return float(text) if text.strip().isdecimal() else otherwise


def _field(file: Path, name: str, unit: int, otherwise: float = inf) -> float:
    found = (line.split() for line in _lines(file))
    return next((float(parts[1]) * unit for parts in found if parts[:1] == [name]), otherwise)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
