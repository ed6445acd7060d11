"""MemorySize and SlotSharingGroup: resource settings of PyFlink programs as plain values.

Spark places tasks; ``spark.executor.memory`` and ``spark.task.cpus`` set memory and cores.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Final, Self

from millstream.errors import ConfigurationError, ProgramError

_KIBI: Final = 1024
_UNITS: Final = ("bytes", "kb", "mb", "gb", "tb")


@total_ordering
class MemorySize:
    """A number of bytes, to be read in other units.

    Args:
        bytes_size: how many; not negative.

    Raises:
        ConfigurationError: it is negative.
    """

    __slots__ = ("_bytes",)

    def __init__(self, bytes_size: int) -> None:
        if bytes_size < 0:
            message = f"a memory size cannot be negative, but it is {bytes_size}"
            raise ConfigurationError(message)
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """So many times 1024 * 1024 bytes."""
        return MemorySize(mebi_bytes * _KIBI**2)

    def get_bytes(self) -> int:
        """The bytes."""
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """Whole units of 1024 bytes."""
        return self._bytes // _KIBI

    def get_mebi_bytes(self) -> int:
        """Whole units of 1024 KiB."""
        return self._bytes // _KIBI**2

    def get_gibi_bytes(self) -> int:
        """Whole units of 1024 MiB."""
        return self._bytes // _KIBI**3

    def get_tebi_bytes(self) -> int:
        """Whole units of 1024 GiB."""
        return self._bytes // _KIBI**4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __lt__(self, other: MemorySize) -> bool:
        if not isinstance(other, MemorySize):
            return NotImplemented
        return self._bytes < other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __str__(self) -> str:
        """In the largest unit of which it is a whole number: ``64 mb``."""
        size, unit = self._bytes, 0
        while size and size % _KIBI == 0 and unit < len(_UNITS) - 1:
            size, unit = size // _KIBI, unit + 1
        return f"{size} {_UNITS[unit]}"

    def __repr__(self) -> str:
        return f"MemorySize({self})"


@dataclass(frozen=True, slots=True)
class _Resources:
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external: dict[str, float] = field(default_factory=dict, hash=False)


class SlotSharingGroup:
    """A named group of operators and what a slot of theirs would need; made by ``builder``."""

    def __init__(self, name: str = "default", resources: _Resources | None = None) -> None:
        """Use ``builder``; a group of a name alone says nothing of resources."""
        self._name = name
        self._resources = resources or _Resources()

    @staticmethod
    def builder(name: str) -> Builder:
        """A builder of a group of this name."""
        return SlotSharingGroup.Builder(name)

    def get_name(self) -> str:
        """The name."""
        return self._name

    def get_cpu_cores(self) -> float | None:
        """The cores; None if nothing is said of resources."""
        return self._resources.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """The tasks' memory in the JVM's heap; None if nothing is said of resources."""
        return self._resources.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """The tasks' memory outside the heap; None if nothing is said of resources."""
        return self._resources.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """The memory for state and Python; None if nothing is said of resources."""
        return self._resources.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Other resources by name, such as ``{"gpu": 1.0}``."""
        return dict(self._resources.external)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SlotSharingGroup)
            and self._name == other._name
            and self._resources == other._resources
        )

    def __hash__(self) -> int:
        return hash((self._name, self._resources))

    def __repr__(self) -> str:
        return f"SlotSharingGroup({self._name!r})"

    class Builder:
        """Says what a slot needs: cores and heap memory, or nothing at all."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._cpu_cores: float | None = None
            self._memory: dict[str, MemorySize] = {}
            self._external: dict[str, float] = {}

        def set_cpu_cores(self, cpu_cores: float) -> Self:
            """Set the cores; raises ConfigurationError unless positive."""
            self._cpu_cores = _positive("the CPU cores", cpu_cores)
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> Self:
            """Set the tasks' memory in the JVM's heap; raises ConfigurationError if it is 0."""
            _positive("the task heap memory", task_heap_memory.get_bytes())
            return self._set("task_heap_memory", task_heap_memory)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> Self:
            """The same in MiB."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> Self:
            """Set the tasks' memory outside the heap."""
            return self._set("task_off_heap_memory", task_off_heap_memory)

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> Self:
            """The same in MiB."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> Self:
            """Set the memory for state and Python."""
            return self._set("managed_memory", managed_memory)

        def set_managed_memory_mb(self, managed_memory_mb: int) -> Self:
            """The same in MiB."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> Self:
            """Set another resource, such as ``gpu``; raises ConfigurationError unless positive."""
            self._external[name] = _positive(f"the resource {name!r}", value)
            return self

        def build(self) -> SlotSharingGroup:
            """The group.

            Raises:
                ConfigurationError: something is said of resources, but not cores and heap memory.
            """
            if self._cpu_cores is None and not self._memory and not self._external:
                return SlotSharingGroup(self._name)
            if self._cpu_cores is None or "task_heap_memory" not in self._memory:
                message = (
                    f"slot sharing group {self._name!r} sets some of its resources: it also needs "
                    "set_cpu_cores() and set_task_heap_memory()"
                )
                raise ConfigurationError(message)
            none = MemorySize(0)
            return SlotSharingGroup(
                self._name,
                _Resources(
                    self._cpu_cores,
                    self._memory["task_heap_memory"],
                    self._memory.get("task_off_heap_memory", none),
                    self._memory.get("managed_memory", none),
                    dict(self._external),
                ),
            )

        def _set(self, name: str, size: MemorySize) -> Self:
            self._memory[name] = size
            return self


def _positive(what: str, value: float) -> float:
    if value <= 0:
        message = f"{what} of a slot sharing group must be positive, not {value}"
        raise ConfigurationError(message)
    return float(value)


#: As in Flink: a key group has two bytes.
MAX_PARALLELISM: Final = 32768
#: The fewest key groups that are derived from a parallelism.
_LEAST_DERIVED: Final = 128


def check_parallelism(parallelism: int) -> int:
    """Return ``parallelism`` if it is a positive number; raises ProgramError."""
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        message = f"parallelism must be a positive number, not {parallelism!r}"
        raise ProgramError(message)
    return parallelism


def check_max_parallelism(max_parallelism: int) -> int:
    """Return ``max_parallelism`` if it is from 1 to 32768; raises ProgramError."""
    if (
        isinstance(max_parallelism, bool)
        or not isinstance(max_parallelism, int)
        or not 1 <= max_parallelism <= MAX_PARALLELISM
    ):
        message = f"max parallelism must be from 1 to {MAX_PARALLELISM}, not {max_parallelism!r}"
        raise ProgramError(message)
    return max_parallelism


def default_max_parallelism(parallelism: int) -> int:
    """Return the number of key groups of an operator for which the program sets none.

    As in Flink: 1.5 times the parallelism, rounded up to a power of two, from 128 to 32768.
    """
    wanted = parallelism + parallelism // 2
    return min(max(1 << (wanted - 1).bit_length(), _LEAST_DERIVED), MAX_PARALLELISM)


def available_cores() -> int:
    """The number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
