"""Tests of jobs on the local engine, on the pipelined engine: same jobs, same expectations."""

from __future__ import annotations

from tests.local.test_files_and_retention import (
    test_checkpoints_of_a_cancelled_job,
    test_files_are_there_in_every_worker,
)
from tests.local.test_job_client import (
    test_a_job_is_run_again_until_failures_are_too_many,
    test_a_running_job_answers_and_is_cancelled,
)

__all__ = [
    "test_a_job_is_run_again_until_failures_are_too_many",
    "test_a_running_job_answers_and_is_cancelled",
    "test_checkpoints_of_a_cancelled_job",
    "test_files_are_there_in_every_worker",
]
