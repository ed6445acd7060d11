"""Servers and addresses for the crash matrix: see ``matrix_case.py``."""

from __future__ import annotations

import shutil
import sys
import threading
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# So that ``tests.matrix`` is found whatever starts pytest.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.databases.server import PostgresServer
from tests.kafka.broker import Broker, running_broker
from tests.matrix.matrix_case import Case, count_passings, fork_server, run_case
from tests.matrix.matrix_targets import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.unprotected import Protection


class Matrix:
    """Runs cases; servers are started when they are first used.

    Args:
        directory: of the session.
        stack: stops the servers.
    """

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._lock = threading.Lock()
        self._postgres: PostgresServer | None = None
        self._broker: Broker | None = None
        self._passings: dict[str, dict[str, int]] = {}

    def run(self, case: Case, without: tuple[Protection, ...] = ()) -> None:
        """Run a case; raises CaseFailedError."""
        with self._lock:
            if case.kind not in self._passings:
                directory = self._new_directory()
                address = self._address(case.kind, directory)
                self._passings[case.kind] = count_passings(case.kind, address, directory)
            directory = self._new_directory()
            address = self._address(case.kind, directory)
        run_case(case, address, directory, self._passings[case.kind], without)
        shutil.rmtree(directory)  # what failed is kept

    def _new_directory(self) -> Path:
        directory = self._directory / uuid.uuid4().hex[:8]
        directory.mkdir()
        return directory

    def _address(self, kind: str, directory: Path) -> str:
        if kind == "kafka":
            if self._broker is None:
                home = self._new_directory()
                self._broker = self._stack.enter_context(running_broker(home))
            return f"{self._broker.servers} {self._broker.topic(PARTITIONS, 'matrix')}"
        if kind.startswith("postgres") or kind == "several":
            if self._postgres is None:
                self._postgres = PostgresServer(max_prepared_transactions=64)
                self._stack.callback(self._postgres.stop)
            schema = self._postgres.new_schema()
            return schema if kind != "several" else f"{schema}|{directory}"
        return str(directory / "results")


@pytest.fixture(scope="session")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    """Runs cases."""
    with ExitStack() as stack:
        stack.enter_context(fork_server())
        yield Matrix(tmp_path_factory.mktemp("matrix"), stack)
