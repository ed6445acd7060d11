"""Endpoints of slots, which Flink calls task managers: each runs one subtask of every vertex."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options
from millstream.rest.app import Call, Endpoint
from millstream.rest.metrics import index, selected, slot_metrics
from millstream.rest.overview import now
from millstream.rest.security import Refused

if TYPE_CHECKING:
    from millstream.rest.view import JobView

_MEBI: Final = 1 << 20
#: In place of a number that has no meaning here, as Flink has it.
_NONE: Final = -1


def _jobs(call: Call) -> list[JobView]:
    """Return the running jobs that a request is about."""
    jobs = [call.job] if "jobid" in call.path else call.jobs.all()
    return [job for job in jobs if job.history.ended < 0]


def slots_of(call: Call) -> dict[str, list[JobView]]:
    """Return the slots with the jobs that run in them; jobs of a driver share their names."""
    found: dict[str, list[JobView]] = {}
    for job in _jobs(call):
        for number in range(max((each.parallelism for each in job.vertices), default=0)):
            found.setdefault(f"slot-{number}", []).append(job)
    return found


def find_slot(call: Call) -> str:
    """Return the slot that the path names.

    Raises:
        Refused: there is none of this name.
    """
    wanted = call.path["taskmanagerid"]
    if wanted not in slots_of(call):
        raise Refused(404, f"Slot {wanted[:64]} not found")
    return wanted


def _subtasks(job: JobView, slot: str) -> int:
    number = int(slot.partition("-")[2])
    return sum(number < vertex.parallelism for vertex in job.vertices)


def _memory(jobs: list[JobView]) -> int:
    """Return the bytes that state may use in a slot."""
    return sum(int(job.configuration.get(options.MANAGED_MEMORY) or 0) for job in jobs)


def _resources(processors: float, managed: int) -> dict[str, Any]:
    return {
        "cpuCores": processors,
        "taskHeapMemory": 0,
        "taskOffHeapMemory": 0,
        "managedMemory": managed // _MEBI,
        "networkMemory": 0,
        "extendedResources": {},
    }


def _hardware(host: str, managed: int) -> dict[str, int]:
    """Return the machine of a slot, if it is this one."""
    physical = free = _NONE
    if host == socket.gethostname():
        page = os.sysconf("SC_PAGE_SIZE")
        physical = page * os.sysconf("SC_PHYS_PAGES")
        free = page * os.sysconf("SC_AVPHYS_PAGES")
    cores = os.cpu_count() or 1 if physical != _NONE else _NONE
    return {
        "cpuCores": cores,
        "physicalMemory": physical,
        "freeMemory": free,
        "managedMemory": managed,
    }


def _slot(name: str, jobs: list[JobView]) -> dict[str, Any]:
    hosts = (index(job).hosts.get(name) for job in jobs)
    host = next((each for each in hosts if each), "(unknown)")
    managed = _memory(jobs)
    other = ("framework", "task")
    return {
        "id": name,
        "path": f"{host}/{name}",
        "dataPort": _NONE,
        "jmxPort": _NONE,
        "timeSinceLastHeartbeat": now(),
        "slotsNumber": 1,
        "freeSlots": 0,
        "assignedTasks": sum(_subtasks(job, name) for job in jobs),
        "totalResource": _resources(1.0, managed),
        "freeResource": _resources(0.0, 0),
        "hardware": _hardware(host, managed),
        "memoryConfiguration": {
            **{f"{each}{kind}": 0 for each in other for kind in ("Heap", "OffHeap")},
            "networkMemory": 0,
            "managedMemory": managed,
            "jvmMetaspace": 0,
            "jvmOverhead": 0,
            "totalFlinkMemory": managed,
            "totalProcessMemory": managed,
        },
    }


def _all(call: Call) -> dict[str, Any]:
    return {"taskmanagers": [_slot(name, jobs) for name, jobs in slots_of(call).items()]}


def _one(call: Call) -> dict[str, Any]:
    name = find_slot(call)
    jobs = slots_of(call)[name]
    used = slot_metrics(call).get(name, {}).get("Status.Process.Memory.RSS", 0)
    memory = int(used) if isinstance(used, int | float) else 0
    # A Python process has no heap of a fixed size, and no pools as a JVM has them.
    pools = [f"{pool}{of}" for pool in ("direct", "mapped") for of in ("Count", "Used", "Max")]
    netty = [f"{kind}{of}" for kind in ("Segments", "") for of in ("Available", "Used", "Total")]
    return {
        **_slot(name, jobs),
        "allocatedSlots": [
            {
                "jobId": job.job_id,
                "resource": _resources(1.0, _memory([job])),
                "assignedTasks": _subtasks(job, name),
            }
            for job in jobs
        ],
        "metrics": {
            "heapUsed": memory,
            "heapCommitted": memory,
            "heapMax": _NONE,
            **{f"nonHeap{each}": 0 for each in ("Used", "Committed", "Max")},
            **dict.fromkeys(pools, 0),
            **{f"nettyShuffleMemory{each}": 0 for each in netty},
            "garbageCollectors": [],
        },
    }


def _metrics(call: Call) -> Any:
    return selected(slot_metrics(call).get(find_slot(call), {}), call.query.get("get"))


def _datasets(_: Call) -> dict[str, Any]:
    """Return nothing: results of batch jobs are not kept for others, as Flink can do it."""
    return {"dataSets": []}


_SLOT: Final = "/taskmanagers/{taskmanagerid}"
ENDPOINTS: Final = (
    Endpoint("GET", "/taskmanagers", _all, "the slots of running jobs"),
    Endpoint("GET", _SLOT, _one, "a slot"),
    Endpoint("GET", f"{_SLOT}/metrics", _metrics, "the metrics of a slot"),
    Endpoint("GET", "/jobs/{jobid}/taskmanagers", _all, "the slots of a job", is_flinks=False),
    Endpoint("GET", "/datasets", _datasets, "always none: jobs keep no results for others"),
)
