"""Answers of the REST API for a job in trouble: skew, backpressure, failed checkpoints, Kafka lag.

A real job is seldom in all of these at once.  Names and nesting are those of Flink's API.
"""

from __future__ import annotations

import math
import re
import time
from typing import Any, Final
from urllib.parse import unquote

JOB: Final = "5c1bf3a9d6e04b7f8a2d91c04e6b7f10"
ENDED: Final = "0f9d4c2b8e1a4f63b7c5d80a1e2f3b4c"
SOURCE, KEYED, SINK, LOOKUP = (each * 32 for each in "abcd")
_MINUTE: Final = 60_000
#: When the job of the example has failed last.
_FAILED: Final = time.time_ns() // 1_000_000 - 7 * _MINUTE


class _Task:
    def __init__(
        self,
        number: str,
        operators: list[tuple[str, str, str, str | None]],
        parallelism: int,
        inputs: list[tuple[str, str]],
        records: list[int],
        busy: float,
        backpressured: float,
        lag: int,
        state: dict[str, int],
    ) -> None:
        self.id, self.operators, self.parallelism = number, operators, parallelism
        self.inputs, self.records, self.busy = inputs, records, busy
        self.backpressured, self.lag, self.state = backpressured, lag, state

    @property
    def name(self) -> str:
        return " -> ".join(operator[0] for operator in self.operators)


_TASKS: Final = [
    _Task(
        SOURCE,
        [
            ("Source: orders", "source", "shop/orders.py:31", "I"),
            ("parse and validate", "operator", "shop/orders.py:38", "I"),
        ],
        2,
        [],
        [812_000, 798_000],
        0.21,
        0.74,
        4_200,
        {"Source: orders": 2_048},
    ),
    _Task(
        LOOKUP,
        [("Source: prices", "source", "shop/orders.py:52", "I,UA,D")],
        1,
        [],
        [51_000],
        0.06,
        0.0,
        1_100,
        {"Source: prices": 912},
    ),
    _Task(
        KEYED,
        [
            ("join orders with prices", "operator", "shop/orders.py:61", "I,UB,UA,D"),
            ("revenue per customer", "operator", "shop/orders.py:74", "I,UB,UA"),
        ],
        4,
        [(SOURCE, "HASH"), (LOOKUP, "HASH")],
        [190_000, 1_020_000, 175_000, 168_000],
        0.93,
        0.0,
        94_000,
        {"join orders with prices": 734_003_200, "revenue per customer": 58_720_256},
    ),
    _Task(
        SINK,
        [("Sink: revenue", "sink", "shop/orders.py:88", None)],
        2,
        [(KEYED, "REBALANCE")],
        [41_000, 40_000],
        0.12,
        0.0,
        95_000,
        {},
    ),
]
_BY_ID: Final = {task.id: task for task in _TASKS}
_TRACEBACK: Final = """\
UserCodeError: ValueError: amount is negative in 'parse and validate' (shop/orders.py:38)
Traceback (most recent call last):
  File "/srv/jobs/shop/orders.py", line 44, in parse
    return Order.of(json.loads(text))
  File "/srv/jobs/shop/model.py", line 19, in of
    raise ValueError("amount is negative")
ValueError: amount is negative

record: {"order": 7714, "customer": "c-20", "amount": -3.5}
"""


def _now() -> int:
    return time.time_ns() // 1_000_000


def _overview(jid: str, name: str, state: str, started: int, took: int) -> dict[str, Any]:
    done = state == "FINISHED"
    tasks = {"total": 9, "running": 0 if done else 9, "finished": 9 if done else 0, "failed": 0}
    return {
        "jid": jid,
        "name": name,
        "state": state,
        "start-time": started,
        "end-time": started + took if done else -1,
        "duration": took,
        "last-modification": started,
        "tasks": tasks,
    }


def _jobs() -> dict[str, Any]:
    now = _now()
    return {
        "jobs": [
            _overview(JOB, "orders-revenue", "RUNNING", now - 3_700 * _MINUTE, 3_700 * _MINUTE),
            _overview(ENDED, "nightly-import", "FINISHED", now - 700 * _MINUTE, 31 * _MINUTE),
            _overview("f" * 32, "fraud-alerts", "RESTARTING", now - 90 * _MINUTE, 90 * _MINUTE),
        ]
    }


def _job() -> dict[str, Any]:
    now = _now()
    return {
        **_overview(JOB, "orders-revenue", "RUNNING", now - 3_700 * _MINUTE, 3_700 * _MINUTE),
        "now": now,
        "isStoppable": True,
        "maxParallelism": 128,
        "vertices": [
            {
                "id": task.id,
                "name": task.name,
                "parallelism": task.parallelism,
                "maxParallelism": 128,
                "status": "RUNNING",
                "start-time": now - 3_700 * _MINUTE,
                "metrics": {
                    "read-records": 0 if not task.inputs else sum(task.records),
                    "write-records": sum(task.records),
                },
            }
            for task in _TASKS
        ],
        "plan": {"jid": JOB, "name": "orders-revenue", "type": "STREAMING", "nodes": _nodes()},
    }


def _nodes() -> list[dict[str, Any]]:
    return [
        {
            "id": task.id,
            "parallelism": task.parallelism,
            "description": task.name,
            "operators": [
                {
                    "uid": name.replace(" ", "-").replace(":", ""),
                    "name": name,
                    "kind": kind,
                    "location": location,
                    "changelog": changes,
                    "guarantee": "exactly-once" if kind == "sink" else None,
                    "details": {"keys": ["customer"]} if "revenue per" in name else {},
                }
                for name, kind, location, changes in task.operators
            ],
            "inputs": [
                {"num": index, "id": source, "ship_strategy": strategy}
                for index, (source, strategy) in enumerate(task.inputs)
            ],
        }
        for task in _TASKS
    ]


def _checkpoint(number: int, now: int) -> dict[str, Any]:
    failed = number == 417
    began = now - (420 - number) * _MINUTE - 41_000
    took = 120_000 if failed else 900 + 700 * (number % 4)
    found: dict[str, Any] = {
        "id": number,
        "status": "FAILED" if failed else "COMPLETED",
        "is_savepoint": number == 414,
        "trigger_timestamp": began,
        "latest_ack_timestamp": began + took,
        "checkpointed_size": 5_400_000 + 310_000 * (number % 5),
        "state_size": 792_700_000 + 100_000 * number,
        "end_to_end_duration": took,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 480_000 if number % 2 else 0,
        "num_subtasks": 9,
        "num_acknowledged_subtasks": 7 if failed else 9,
        "checkpoint_type": "SAVEPOINT" if number == 414 else "CHECKPOINT",
        "tasks": {},
    }
    if failed:
        found["failure_message"] = (
            "Checkpoint expired before completing: subtasks 1 and 3 of"
            " 'join orders with prices' have not acknowledged within 2 min"
        )
    return found


def _checkpoints() -> dict[str, Any]:
    now = _now()
    history = [_checkpoint(number, now) for number in range(420, 408, -1)]
    figures = {"min": 900, "max": 3_000, "avg": 1_950, "p50": 1_900, "p90": 2_800, "p99": 3_000}
    sizes = {**figures, "min": 5_100_000, "avg": 5_900_000, "p99": 6_600_000, "max": 6_700_000}
    states = {**figures, "min": 790_000_000, "avg": 812_000_000, "p99": 840_000_000, "max": 8.4e8}
    return {
        "counts": {"restored": 1, "total": 421, "in_progress": 0, "completed": 418, "failed": 3},
        "summary": {
            "end_to_end_duration": figures,
            "checkpointed_size": sizes,
            "state_size": states,
            "persisted_data": {**figures, "min": 0, "avg": 240_000, "p99": 480_000, "max": 480_000},
        },
        "latest": {"completed": history[0], "failed": history[3], "savepoint": history[6]},
        "history": history,
    }


def _checkpoint_details(number: int) -> dict[str, Any]:
    found = _checkpoint(number, _now())
    for task in _TASKS:
        found["tasks"][task.id] = {
            "end_to_end_duration": 700 + 200 * task.parallelism,
            "state_size": sum(task.state.values()),
            "checkpointed_size": 1_200_000,
            "num_subtasks": task.parallelism,
            "num_acknowledged_subtasks": task.parallelism,
        }
    return found


def _exceptions() -> dict[str, Any]:
    entry = {
        "exceptionName": "millstream.errors.UserCodeError",
        "stacktrace": _TRACEBACK,
        "timestamp": _FAILED,
        "taskName": "Source: orders -> parse and validate (2/2)",
        "endpoint": "worker-2:41001",
        "taskManagerId": "slot-1",
        "failureLabels": {},
        "concurrentExceptions": [],
    }
    return {"exceptionHistory": {"entries": [entry], "truncated": False}}


def _wave(task: _Task) -> float:
    return 1 + 0.2 * math.sin(time.monotonic() / 3 + ord(task.id[0]))


def _metric_values(task: _Task) -> dict[str, list[float]]:
    """Metric -> its value per subtask."""
    subtasks = range(task.parallelism)
    share = [records / sum(task.records) for records in task.records]
    rate = 24_800 * _wave(task) * (0.1 if task.id in (SINK, LOOKUP) else 1)
    values = {
        "numRecordsIn": [float(each) for each in task.records],
        "numRecordsOutPerSecond": [rate * each for each in share],
        "busyTimeMsPerSecond": [1000 * task.busy] * task.parallelism,
        "backPressuredTimeMsPerSecond": [1000 * task.backpressured] * task.parallelism,
        "idleTimeMsPerSecond": [1000 * (1 - task.busy - task.backpressured) for _ in subtasks],
    }
    if task.inputs:
        values["numRecordsInPerSecond"] = [rate * each for each in share]
    for name, *_ in task.operators:
        prefix = re.sub(r"[^A-Za-z0-9]", "_", name)
        kind = "Input" if task.inputs else "Output"
        values[f"{prefix}.current{kind}Watermark"] = [_now() - task.lag] * task.parallelism
        values[f"{prefix}.numRecordsOutPerSecond"] = values["numRecordsOutPerSecond"]
        if name in task.state:
            values[f"{prefix}.lastCheckpointStateSize"] = [task.state[name] * s for s in share]
    if task.id == SOURCE:
        values["Source__orders.pendingRecords"] = [310_000.0, 121_000.0]
        for partition, lag in enumerate((301_200, 8_800, 119_000, 2_000)):
            group = f"Source__orders.KafkaSourceReader.topic.orders.partition.{partition}"
            values[f"{group}.records-lag"] = [lag]
            values[f"{group}.currentOffset"] = [402_117 + 1_000 * partition]
            values[f"{group}.committedOffset"] = [401_990 + 1_000 * partition]
    return values


def _aggregated(task: _Task, wanted: list[str] | None) -> list[dict[str, Any]]:
    values = _metric_values(task)
    if wanted is None:
        return [{"id": name} for name in values]
    return [
        {
            "id": name,
            "min": min(values[name]),
            "max": max(values[name]),
            "sum": sum(values[name]),
            "avg": sum(values[name]) / len(values[name]),
        }
        for name in wanted
        if name in values
    ]


def _per_subtask(task: _Task, wanted: list[str] | None) -> list[dict[str, Any]]:
    values = {
        f"{subtask}.{name}": value
        for name, each in _metric_values(task).items()
        for subtask, value in enumerate(each)
    }
    if wanted is None:
        return [{"id": name} for name in values]
    return [{"id": name, "value": str(values[name])} for name in wanted if name in values]


def _vertex(task: _Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.name,
        "parallelism": task.parallelism,
        "now": _now(),
        "subtasks": [
            {
                "subtask": number,
                "status": "RUNNING",
                "attempt": 1,
                "endpoint": f"worker-{number % 3}:41001",
                "metrics": {"read-records": records, "write-records": records},
            }
            for number, records in enumerate(task.records)
        ],
    }


def _pressure(task: _Task) -> dict[str, Any]:
    return {
        "status": "ok",
        "subtasks": [
            {
                "subtask": number,
                "ratio": task.backpressured,
                "busyRatio": task.busy if records == max(task.records) else task.busy / 3,
                "idleRatio": 1 - task.busy - task.backpressured,
            }
            for number, records in enumerate(task.records)
        ],
    }


_LOG: Final = "\n".join(
    [
        *(
            f"2026-11-28 03:{minute:02}:00,114 INFO millstream: job 'orders-revenue': checkpoint "
            f"{380 + minute} completed in 1.9 s"
            for minute in range(41)
        ),
        "2026-11-28 03:41:02,007 WARNING millstream: checkpoint 417 expired before completing",
        "2026-11-28 03:41:02,009 ERROR millstream: amount is negative (shop/orders.py:38)",
    ]
)
_PLAN: Final = """\
Sink(table=[revenue], fields=[customer, total])
+- GroupAggregate(groupBy=[customer], select=[customer, SUM(amount) AS total])
   +- Join(joinType=[InnerJoin], where=[(item = item0)], changelogMode=[I,UB,UA,D])
"""
_OPTIONS: Final = {
    "execution.checkpointing.interval": "1 min",
    "millstream.execution": "pipelined",
    "state.backend.type": "rocksdb",
    "fs.s3.secret-key": "******",
}


def answer(path: str, query: dict[str, str]) -> Any:
    """Return the JSON (or text) at a path; None if there is nothing."""
    path = path.strip("/")
    wanted = [unquote(each) for each in query["get"].split(",")] if "get" in query else None
    fixed: dict[str, Any] = {
        "config": {
            "refresh-interval": 500,
            "flink-version": "2.3.0",
            "millstream-version": "0.1.0",
            "features": {"web-submit": False, "web-cancel": True, "web-history": False},
        },
        "overview": {"slots-total": 4, "jobs-running": 2, "flink-version": "2.3.0"},
        "jobs/overview": _jobs(),
        f"jobs/{JOB}": _job(),
        f"jobs/{JOB}/checkpoints": _checkpoints(),
        f"jobs/{JOB}/checkpoints/config": {
            "mode": "exactly_once",
            "interval": 60_000,
            "timeout": 120_000,
            "min_pause": 0,
            "unaligned_checkpoints": True,
            "tolerable_failed_checkpoints": 2,
            "state_backend": "rocksdb",
            "externalization": {"enabled": True, "delete_on_cancellation": False},
        },
        f"jobs/{JOB}/exceptions": _exceptions(),
        f"jobs/{JOB}/metrics": [{"id": "numRestarts", "value": "2"}],
        f"jobs/{JOB}/plan": {"plan": {}, "text": _PLAN},
        f"jobs/{JOB}/config": {
            "execution-config": {
                "execution-mode": "PIPELINED",
                "restart-strategy": "exponential-delay",
                "job-parallelism": 4,
                "user-config": {},
            }
        },
        f"jobs/{JOB}/jobmanager/config": [{"key": k, "value": v} for k, v in _OPTIONS.items()],
        f"jobs/{JOB}/jobmanager/logs": {
            "logs": [{"name": "driver.log", "size": len(_LOG), "mtime": _now()}]
        },
        f"jobs/{JOB}/jobmanager/logs/driver.log": _LOG,
        f"jobs/{JOB}/taskmanagers": {"taskmanagers": []},
    }
    if path in fixed:
        return fixed[path]
    found = re.fullmatch(rf"jobs/{JOB}/checkpoints/details/(\d+)(/subtasks/.*)?", path)
    if found and found[2]:
        spread = {"min": 3, "max": 1_240, "avg": 310}
        return {"summary": {"alignment": {"duration": spread}, "start_delay": spread}}
    if found:
        return _checkpoint_details(int(found[1]))
    found = re.fullmatch(rf"jobs/{JOB}/vertices/(\w+)(/.*)?", path)
    return _of_task(_BY_ID[found[1]], found[2] or "", wanted) if found else None


def _of_task(task: _Task, rest: str, wanted: list[str] | None) -> Any:
    if rest == "/subtasks/metrics":
        return _aggregated(task, wanted)
    if rest == "/metrics":
        return _per_subtask(task, wanted)
    if rest == "/backpressure":
        return _pressure(task)
    if rest == "/watermarks":
        return [
            {"id": f"{number}.currentInputWatermark", "value": str(_now() - task.lag)}
            for number in range(task.parallelism)
        ]
    return None if rest else _vertex(task)
