"""A server with the interface of Azure Blob Storage: azurite, on a free port of loopback.

It is a package of npm, which the first test that needs it installs into a cache of the user.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import subprocess
import tempfile
import time
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.ports import free_port

if TYPE_CHECKING:
    from obstore.store import AzureStore

_VERSION: Final = "3.37.0"
#: Those that azurite documents for everybody.
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_PROTOCOL: Final = "2021-08-06"
_PATIENCE: Final = 60.0


class AzureServer:
    """A server with containers made on demand."""

    scheme = "az"

    def __init__(self) -> None:
        self.port = free_port()
        self._buckets = 0
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by ``stop``
        self._process = subprocess.Popen(
            [
                *("node", str(_installed() / "node_modules/azurite/dist/src/blob/main.js")),
                *("--blobPort", str(self.port), "--inMemoryPersistence", "--silent"),
                *("--skipApiVersionCheck", "--disableTelemetry"),
            ],
            stdout=self._log,
            stderr=self._log,
        )
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            assert self._process.poll() is None, "azurite has ended"
            assert time.monotonic() < deadline, "azurite does not answer"
            time.sleep(0.05)

    @staticmethod
    def is_installed() -> bool:
        """Whether it can be installed."""
        return shutil.which("npm") is not None

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(_PATIENCE)
        self._log.close()

    def environment(self) -> dict[str, str]:
        """The variables with which clients find it and may use it."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def new_bucket(self) -> str:
        """The name of a new container."""
        self._buckets += 1
        name = f"container{self._buckets}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _PROTOCOL}
        signed = "\n".join(f"{header}:{value}" for header, value in headers.items())
        place = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        text = "PUT" + "\n" * 12 + f"{signed}\n{place}"
        digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        assert connection.getresponse().status == http.client.CREATED
        connection.close()
        return name

    def client(self, bucket: str) -> AzureStore:
        """A client that is independent of Millstream."""
        from obstore.store import AzureStore

        config: Any = {
            "container_name": bucket,
            "account_name": ACCOUNT,
            "account_key": KEY,
            "endpoint": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
        }
        allowed: Any = {"allow_http": True}
        return AzureStore(config=config, client_options=allowed)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.connect()
        except OSError:
            return False
        connection.close()
        return True


def _installed() -> Path:
    """Return where azurite is; a first one installs it, as a whole or not at all."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millstream-tests"
    place = cache / f"azurite-{_VERSION}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="azurite-", dir=cache))
        command = ["npm", "install", "--omit=dev", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run([*command, f"azurite@{_VERSION}"], cwd=made, check=True)
        try:
            made.rename(place)
        except OSError:  # another process was faster
            shutil.rmtree(made)
    return place
