"""``millstream run job.py``: ``cli/program.py`` with an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.cli.program import run_as_main

if TYPE_CHECKING:
    from millstream.cli.program import ProgramOptions

__all__ = ["run_program"]


def run_program(options: ProgramOptions) -> int:
    """Run the program; errors of Millstream are raised, ``sys.exit`` of the program goes through.

    Jobs that it has started and not waited for are waited for, or cancelled if it failed.

    Returns:
        0, or 1 if a job that was waited for here has failed.

    Raises:
        MillstreamError: the job could not be started, or failed.
    """
    from millstream.datastream.running_jobs import end_of_program

    try:
        run_as_main(options)
    except SystemExit:
        end_of_program(failed=False)
        raise
    except BaseException:
        end_of_program(failed=True)
        raise
    return 0 if end_of_program(failed=False) else 1
