"""``millstream run job.py``: run a program.

What it is: ``cli/program.py`` with an exit code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.cli.program import run_as_main

if TYPE_CHECKING:
    from millstream.cli.program import ProgramOptions

__all__ = ["run_program"]


def run_program(options: ProgramOptions) -> int:
    """Run the program; errors of Millstream are raised, ``sys.exit`` of the program goes through.

    Raises:
        MillstreamError: the job could not be started, or failed.
    """
    run_as_main(options)
    return 0
