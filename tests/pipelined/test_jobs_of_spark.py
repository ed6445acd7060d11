"""Tests of jobs on Spark, on the pipelined engine: the same jobs, the same expectations.

Their environments come from the ``make`` of this directory.  Not here are those that say what is
in which epoch; ``test_failures.py`` has their like.
"""

from __future__ import annotations

import pytest
from tests.spark.conftest import job
from tests.spark.test_bad_input import (
    durable,
    test_a_value_that_does_not_fit_its_type,
    test_malformed_line,
)
from tests.spark.test_failures import (
    test_an_error_in_open_names_the_operator,
    test_fixed_delay_restarts,
    test_killed_worker_without_restart,
    test_restarts_end,
)
from tests.spark.test_smoke import test_killed_worker
from tests.spark.test_sources_and_sinks import (
    test_continuous_monitoring_and_job_client,
    test_generator_at_a_rate_and_processing_time_timers,
    test_oracle_files_numbers_and_generator,
    test_print,
    test_python_files,
    test_result_of_execute_async,
    test_socket,
)
from tests.spark.test_transformations import (
    test_async_calls_of_several_splits_are_under_way_together,
    test_oracle_batch_mode,
    test_oracle_records,
    test_oracle_time_and_state,
)

__all__ = [
    "durable",
    "job",
    "test_a_value_that_does_not_fit_its_type",
    "test_an_error_in_open_names_the_operator",
    "test_async_calls_of_several_splits_are_under_way_together",
    "test_continuous_monitoring_and_job_client",
    "test_fixed_delay_restarts",
    "test_generator_at_a_rate_and_processing_time_timers",
    "test_killed_worker",
    "test_killed_worker_without_restart",
    "test_malformed_line",
    "test_oracle_batch_mode",
    "test_oracle_files_numbers_and_generator",
    "test_oracle_records",
    "test_oracle_time_and_state",
    "test_print",
    "test_python_files",
    "test_restarts_end",
    "test_result_of_execute_async",
    "test_socket",
]

pytestmark = pytest.mark.extended
