"""``millstream run`` and ``millstream plan``: run a program, or show its graph instead.

Options reach ``get_execution_environment()`` as JSON in the environment variable
``MILLSTREAM_CONFIGURATION``, because a program may start processes of its own.  ``plan`` takes the
graph in place of execution: sources are not read and Spark is not started.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import CheckpointError, ConfigurationError, DirectoryError, ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.graph.model import JobGraph


#: JSON: option key -> value as text.
CONFIGURATION_VARIABLE: Final = "MILLSTREAM_CONFIGURATION"


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """A program and what the command line says about it."""

    path: str
    arguments: list[str] = field(default_factory=list)
    parallelism: int | None = None
    checkpoint_directory: str | None = None
    #: A savepoint or checkpoint directory to start from, and whether state may be left behind.
    savepoint: str | None = None
    allow_non_restored_state: bool = False
    target: str | None = None
    pipelined: bool = False
    master: str | None = None
    configuration_file: str | None = None
    log_configuration: str | None = None
    standby: bool = False
    #: From ``-D key=value``; these win over the configuration file, the named options over both.
    definitions: dict[str, str] = field(default_factory=dict)

    def configuration(self) -> dict[str, str]:
        """All options by key.

        Raises:
            ConfigurationError: an option makes no sense, or its key of a command line, where it is
                typed by hand, looks misspelt; the file cannot be read.
        """
        from millstream.configuration.configuration import Configuration, misspelling

        for key in self.definitions:
            hint = misspelling(key)
            if hint is not None:
                raise ConfigurationError(hint)
        collected: dict[str, str] = {}
        if self.configuration_file is not None:
            loaded = Configuration.from_file(self.configuration_file)
            collected |= {key: str(value) for key, value in loaded.to_dict().items()}
        collected |= self.definitions
        collected |= self._named()
        Configuration(collected)  # or it makes no sense
        return collected

    def _named(self) -> dict[str, str]:
        """Those that have an argument of their own."""
        directory, savepoint = self.checkpoint_directory, self.savepoint
        log = self.log_configuration
        ignores = "true" if self.allow_non_restored_state else None
        found = {
            "parallelism.default": None if self.parallelism is None else str(self.parallelism),
            "execution.checkpointing.dir": None if directory is None else absolute(directory),
            "execution.state-recovery.path": None if savepoint is None else absolute(savepoint),
            "execution.state-recovery.ignore-unclaimed-state": ignores,
            "execution.target": self.target,
            "millstream.execution": "pipelined" if self.pipelined else None,
            "millstream.spark.master": self.master,
            "millstream.standby": "true" if self.standby else None,
            "millstream.logging.config-file": None if log is None else absolute(log),
        }
        return {key: value for key, value in found.items() if value is not None}


def absolute(directory: str) -> str:
    """A directory, wherever the program goes; a URI stays as it is."""
    return directory if "://" in directory else str(Path(directory).absolute())


def run_as_main(options: ProgramOptions) -> None:
    """Run the program with its arguments and defaults.

    Raises:
        ConfigurationError: there is no such file, or an option makes no sense.
    """
    path = Path(options.path)
    if not path.is_file():
        what = f"{options.path!r} is a directory, not a program"
        message = what if path.is_dir() else f"there is no program {options.path!r}"
        raise ConfigurationError(message)
    defaults = json.dumps(options.configuration())
    with _as_main(path, options.arguments, {CONFIGURATION_VARIABLE: defaults}):
        runpy.run_path(str(path), run_name="__main__")


@contextlib.contextmanager
def _as_main(path: Path, arguments: list[str], variables: dict[str, str]) -> Iterator[None]:
    """Set ``sys`` and ``os.environ`` as for ``python path arguments``, and restore them."""
    before = (sys.argv, sys.path[:], {name: os.environ.get(name) for name in variables})
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent.absolute()))
    os.environ.update(variables)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before[0], before[1]
        for name, value in before[2].items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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


def supervise_program(options: ProgramOptions) -> int:
    """Run this command again as a driver, and once more each time that it dies.

    Returns:
        The exit code of the driver.

    Raises:
        ConfigurationError: an option makes no sense.
    """
    from millstream.configuration.configuration import Configuration
    from millstream.execution.restart import restart_strategy
    from millstream.execution.supervision import Supervisor

    strategy = restart_strategy(Configuration(options.configuration()))
    # As it was started, whether as a script or as a module: the import path depends on it.
    return Supervisor([sys.executable, *sys.orig_argv[1:]], strategy).run()


def capture_job_graph(options: ProgramOptions) -> JobGraph:
    """Run the program up to its first execution and return the graph it would have run.

    Raises:
        ProgramError: the program ends without executing anything.
    """
    from millstream.datastream.environment import capture_job_graphs

    with capture_job_graphs() as graphs:
        run_as_main(options)
    if graphs:
        return graphs[0]
    message = f"{options.path} ended without calling execute()"
    raise ProgramError(message)


def _start(graph: JobGraph) -> list[str]:
    """How the job would start now, or why it would be refused."""
    from millstream.execution.job import planned_start

    try:
        return planned_start(graph)
    except (CheckpointError, DirectoryError) as error:
        return f"refused: {error}".splitlines()


def show_plan(options: ProgramOptions, *, svg: str | None = None, as_json: bool = False) -> int:
    """Print the plan of a program.

    Args:
        options: the program.
        svg: a file to draw the plan into.
        as_json: print JSON in place of text.
    """
    from millstream.engines.registry import describe_engine
    from millstream.execution.job import operators_without_uid
    from millstream.graph.explain import execution_plan, explain, picture

    graph = capture_job_graph(options)
    if as_json:
        print(execution_plan(graph).rstrip("\n"))
    else:
        print(explain(graph))
        print(describe_engine(graph))
        print("\n".join(["\nStart", *(f"  {line}" for line in _start(graph))]))
        missing = operators_without_uid(graph)
        if missing:
            print("\n".join(["\nWithout a uid", *(f"  {line}" for line in missing)]))
    if svg is not None:
        Path(svg).write_text(picture(graph), encoding="utf-8")
        if not as_json:
            print(f"\nPicture: {svg}")
    return 0
