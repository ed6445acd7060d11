from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.ui.browser import IS_INSTALLED, Browser, open_browser
from tests.ui.example_server import ExampleServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not IS_INSTALLED:
        pytest.skip("needs chromium and chromedriver (apt install chromium chromium-driver)")
    with open_browser() as found:
        yield found


@pytest.fixture
def example() -> Iterator[ExampleServer]:
    with ExampleServer() as server:
        yield server
