"""Endpoints of Python stacks: thread dumps of driver and slots, and flame graphs of vertices.

Slots sample only while somebody asks: a request for a flame graph has samples taken in a thread
unless recent ones are known, and is answered with what is known, as in Flink.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from millstream.configuration import options
from millstream.configuration.redaction import redacted_text
from millstream.rest.app import Call, Endpoint
from millstream.rest.overview import find_vertex, now
from millstream.rest.security import Refused
from millstream.rest.slots import find_slot, slots_of
from millstream.runtime.pipelined.control import StackRequest
from millstream.runtime.pipelined.stacks import thread_stacks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.rest.view import JobView
    from millstream.runtime.pipelined.control import Stack

#: Seconds that a slot may take to answer, beside those of its samples.
_PATIENCE: Final = 5.0
#: Frames of a stack: JSON is made by functions that call themselves.
_DEEPEST: Final = 200
#: In place of a time stamp, as the dashboard of Flink reads it.
_ENDED, _DISABLED, _WAITING = -1, -2, -3
#: In place of the number of a stage.
_EVERY: Final = -1
#: Type of a flame graph -> whether a sample with this use of a processor belongs to it.
_TYPES: Final = {"FULL": (True, False), "ON_CPU": (True,), "OFF_CPU": (False,)}


def _infos(threads: Mapping[str, str]) -> dict[str, Any]:
    """Return stacks as Flink does, without secrets in lines of the program."""
    return {
        "threadInfos": [
            {"threadName": name, "stringifiedThreadInfo": redacted_text(stack)}
            for name, stack in sorted(threads.items())
        ]
    }


def _of_driver(_: Call) -> dict[str, Any]:
    return _infos(thread_stacks())


def _of_slot(call: Call) -> dict[str, Any]:
    """Return where the threads of a slot are, or why that is not known."""
    name = find_slot(call)
    number = int(name.partition("-")[2])
    found: dict[str, str] = {}
    for job in slots_of(call)[name]:
        answer = job.stacks([number], StackRequest(0), _PATIENCE).get(number)
        if answer is not None:
            found |= answer.threads
    if not found:
        how = "it does not answer, or runs micro-batches: py-spy dump --pid PID shows its stacks"
        found[name] = f'"{name}"\nThe driver does not have the stacks of this slot: {how}.'
    return _infos(found)


@dataclass(slots=True)
class _Samples:
    """The samples of a job."""

    #: Milliseconds since 1970; -1: none were taken.
    taken: int = -1
    #: (stage, subtask), with ``_EVERY`` between two tasks -> stack -> how often it was seen.
    stacks: dict[tuple[int, int], Counter[Stack]] = field(default_factory=dict)
    #: A thread takes new ones.
    is_under_way: bool = False


_samples: Final[WeakKeyDictionary[JobView, _Samples]] = WeakKeyDictionary()
_sampling: Final = threading.Lock()


def _samples_of(job: JobView) -> _Samples:
    """Return the last samples of a job, and have new ones taken if they are old."""
    refresh = job.configuration.get(options.FLAMEGRAPH_REFRESH_INTERVAL)
    with _sampling:
        found = _samples.setdefault(job, _Samples())
        if not found.is_under_way and (found.taken < 0 or now() - found.taken > refresh):
            found.is_under_way = True
            threading.Thread(
                target=_take, args=(job,), name="millstream-flamegraph", daemon=True
            ).start()
        return found


def _take(job: JobView) -> None:
    get = job.configuration.get
    count, delay = get(options.FLAMEGRAPH_SAMPLES), get(options.FLAMEGRAPH_DELAY) / 1000
    request = StackRequest(0, count, delay, min(get(options.FLAMEGRAPH_DEPTH), _DEEPEST))
    slots = range(max((each.parallelism for each in job.vertices), default=0))
    found = _Samples()
    try:
        # On a busy machine a sample takes longer than the delay.
        answers = job.stacks(slots, request, 3 * count * max(delay, 0.01) + _PATIENCE)
        for slot, answer in answers.items():
            for stack, times in answer.samples.items():
                # Between two tasks a slot waits for records: all of its subtasks do.
                key = stack.task or (_EVERY, slot)
                found.stacks.setdefault(key, Counter())[stack] += times
        if answers:
            found.taken = now()
    finally:
        with _sampling:
            _samples[job] = found


def _subtasks(call: Call, parallelism: int) -> range:
    """Return the subtasks of a vertex that a flame graph is of."""
    wanted = call.query.get("subtaskindex")
    if wanted is None:
        return range(parallelism)
    if not wanted.isdecimal() or int(wanted) >= parallelism:
        raise Refused(404, f"Subtask {wanted[:32]} not found: there are {parallelism}")
    return range(int(wanted), int(wanted) + 1)


def _flame_graph(call: Call) -> dict[str, Any]:
    job, vertex = call.job, find_vertex(call)
    kind = call.query.get("type", "FULL").upper()
    if kind not in _TYPES:
        raise Refused(400, f"type is {kind[:32]!r}: it may be {', '.join(_TYPES)}")
    subtasks = _subtasks(call, vertex.parallelism)
    if job.history.ended >= 0:
        return {"endTimestamp": _ENDED}
    get = job.configuration.get
    if not get(options.FLAMEGRAPH) or get(options.EXECUTION) != "pipelined":
        return {"endTimestamp": _DISABLED}
    samples = _samples_of(job)
    if samples.taken < 0:
        return {"endTimestamp": _WAITING}
    stage = job.vertices.index(vertex)
    merged: Counter[tuple[str, ...]] = Counter()
    for key in ((number, subtask) for number in (stage, _EVERY) for subtask in subtasks):
        for stack, times in samples.stacks.get(key, Counter()).items():
            if stack.on_cpu in _TYPES[kind]:
                merged[stack.frames] += times
    return {"endTimestamp": samples.taken, "data": _tree(merged)}


def _tree(stacks: Mapping[tuple[str, ...], int]) -> dict[str, Any]:
    """Return stacks as a tree, whose nodes have the number of samples that pass through them."""
    root: dict[str, Any] = {"name": "root", "value": 0, "children": {}}
    for frames, times in stacks.items():
        node = root
        node["value"] += times
        for frame in frames:
            node = node["children"].setdefault(frame, {"name": frame, "value": 0, "children": {}})
            node["value"] += times
    return _with_lists(root)


def _with_lists(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "children": [_with_lists(each) for each in node["children"].values()]}


_DUMP: Final = "thread-dump"
ENDPOINTS: Final = (
    Endpoint("GET", f"/jobmanager/{_DUMP}", _of_driver, "where the threads of the driver are"),
    Endpoint(
        "GET", f"/taskmanagers/{{taskmanagerid}}/{_DUMP}", _of_slot, "where those of a slot are"
    ),
    Endpoint(
        "GET",
        "/jobs/{jobid}/vertices/{vertexid}/flamegraph",
        _flame_graph,
        "sampled stacks of its subtasks, with `rest.flamegraph.enabled`",
    ),
)
