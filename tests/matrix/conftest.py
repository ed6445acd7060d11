"""Servers and addresses for the crash matrix: see ``matrix_case.py``."""

from __future__ import annotations

import shutil
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix.matrix_case import Case, count_passings, run_case
from tests.matrix.matrix_targets import PARTITIONS, MatrixTarget, make_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.databases.server import PostgresServer
    from tests.kafka.broker import Broker
    from tests.support.unprotected import Protection


class Matrix:
    """Runs cases; servers are started when they are first used.

    Args:
        directory: of the session.
        fixture: gives a fixture of the session by its name.
    """

    def __init__(self, directory: Path, fixture: Callable[[str], Any]) -> None:
        self._directory = directory
        self._fixture = fixture
        self._lock = threading.Lock()
        self._passings: dict[str, dict[str, int]] = {}

    def run(self, case: Case, without: tuple[Protection, ...] = ()) -> None:
        """Run a case; raises CaseFailedError."""
        with self._lock:
            if case.kind not in self._passings and not case.on_slots:
                directory = self._new_directory()
                address = self._address(case.kind, directory)
                self._passings[case.kind] = count_passings(case.kind, address, directory)
            directory = self._new_directory()
            address = self._address(case.kind, directory)
        try:
            run_case(case, address, directory, self._passings.get(case.kind, {}), without)
        finally:
            if without and case.kind == "postgres-two-phase":
                self._fixture("server").forget_prepared()
        shutil.rmtree(directory)  # what failed is kept

    def _new_directory(self) -> Path:
        directory = self._directory / uuid.uuid4().hex[:8]
        directory.mkdir()
        return directory

    def new_target(self, kind: str) -> tuple[MatrixTarget, Path]:
        """A new target, and a directory for its job."""
        directory = self._new_directory()
        target = make_target(kind, self._address(kind, directory))
        target.create()
        return target, directory

    def _address(self, kind: str, directory: Path) -> str:
        if kind == "kafka":
            broker: Broker = self._fixture("broker")
            return f"{broker.servers} {broker.topic(PARTITIONS, 'matrix')}"
        if kind.startswith("postgres") or kind == "several":
            server: PostgresServer = self._fixture("server")
            schema = server.new_schema()
            return schema if kind != "several" else f"{schema}|{directory}"
        return str(directory / "results")


@pytest.fixture(scope="session")
def matrix(
    forks: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Matrix:
    """Runs cases."""
    return Matrix(tmp_path_factory.mktemp("matrix"), request.getfixturevalue)
