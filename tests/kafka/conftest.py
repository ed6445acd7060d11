"""One broker for all tests of this directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# So that ``tests.kafka.broker`` is found whatever starts pytest.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.kafka.broker import Broker, running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running
