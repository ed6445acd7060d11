"""Endpoints of configuration and environment: options of a job, without secrets."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options
from millstream.configuration.redaction import redacted_options, redacted_text
from millstream.rest.app import Call, Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.rest.view import JobView


def _entries(jobs: Iterable[JobView]) -> list[dict[str, str]]:
    """Return the options of jobs; those of the last one count."""
    found: dict[str, str] = {}
    for job in jobs:
        found |= redacted_options(job.configuration.to_dict())
    return [{"key": key, "value": value} for key, value in sorted(found.items())]


def _of_driver(call: Call) -> list[dict[str, str]]:
    return _entries(call.jobs.all())


def _of_job(call: Call) -> list[dict[str, str]]:
    return _entries([call.job])


def _execution(call: Call) -> dict[str, Any]:
    job = call.job
    get = job.configuration.get
    parameters: dict[str, str] = get(options.GLOBAL_JOB_PARAMETERS)
    default = "exponential-delay" if get(options.CHECKPOINTING_INTERVAL) else "none"
    return {
        "jid": job.job_id,
        "name": job.name,
        "execution-config": {
            "execution-mode": get(options.EXECUTION).upper(),
            "restart-strategy": get(options.RESTART_STRATEGY) or default,
            "job-parallelism": max((each.parallelism for each in job.vertices), default=1),
            # Records are not copied between operators of a chain.
            "object-reuse-mode": True,
            "user-config": redacted_options(parameters),
        },
    }


def _checkpoints(call: Call) -> dict[str, Any]:
    get = call.job.configuration.get
    directory = get(options.CHECKPOINTS_DIRECTORY)
    retention = get(options.CHECKPOINT_RETENTION)
    return {
        "mode": get(options.CHECKPOINTING_MODE).lower(),
        "interval": int(get(options.CHECKPOINTING_INTERVAL) or 0),
        "timeout": int(get(options.CHECKPOINTING_TIMEOUT)),
        "min_pause": int(get(options.CHECKPOINTING_MIN_PAUSE)),
        "max_concurrent": get(options.MAX_CONCURRENT_CHECKPOINTS),
        "externalization": {
            "enabled": bool(directory),
            "delete_on_cancellation": not directory or retention == "DELETE_ON_CANCELLATION",
        },
        "state_backend": get(options.STATE_BACKEND),
        "checkpoint_storage": redacted_text(directory) or "a temporary directory",
        "unaligned_checkpoints": get(options.UNALIGNED_CHECKPOINTS),
        "tolerable_failed_checkpoints": get(options.TOLERABLE_FAILURES),
        "aligned_checkpoint_timeout": int(get(options.ALIGNED_CHECKPOINT_TIMEOUT)),
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "",
    }


def _environment(_: Call) -> dict[str, Any]:
    """Return the interpreter of the driver, without its arguments, which may have secrets."""
    implementation = platform.python_implementation()
    return {
        "jvm": {
            "version": f"{implementation} {platform.python_version()}",
            "arch": platform.machine(),
            "options": [f"-X{name}" for name in sys._xoptions],  # noqa: SLF001 - documented so
        },
        "classpath": list(sys.path),
    }


_DRIVER: Final = "/jobs/{jobid}/jobmanager"
ENDPOINTS: Final = (
    Endpoint("GET", "/jobmanager/config", _of_driver, "the options of the driver's jobs"),
    Endpoint("GET", f"{_DRIVER}/config", _of_job, "the options of a job"),
    Endpoint("GET", "/jobs/{jobid}/config", _execution, "how a job is executed"),
    Endpoint("GET", "/jobs/{jobid}/checkpoints/config", _checkpoints, "options of checkpoints"),
    Endpoint("GET", "/jobmanager/environment", _environment, "the interpreter of the driver"),
    Endpoint("GET", f"{_DRIVER}/environment", _environment, "the same"),
)
