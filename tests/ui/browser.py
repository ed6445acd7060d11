"""A headless Chromium, with what it has logged and requested."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMEDRIVER = shutil.which("chromedriver")
IS_INSTALLED = CHROMIUM is not None and CHROMEDRIVER is not None
#: Width and height of a desktop and of a phone.
DESKTOP, PHONE = (1440, 900), (375, 812)
_PATIENCE = 20.0


class Browser:
    """Opens pages and reads what is on them."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, url: str, *, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
        """Open a page from scratch at a size of the window."""
        width, height = size
        # Not the window's: a headless one is at least 500 pixels wide.
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self._log(log)
        self.driver.get(url)

    def command(self, name: str, **arguments: Any) -> Any:
        """Run a command of the browser's DevTools."""
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript; what it returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self) -> str:
        """Return what is to be read on the page."""
        return str(self.run("return document.body.innerText"))

    def wait_for(self, text: str) -> None:
        """Wait until a text is on the page."""
        self.until(lambda: text in self.text(), f"{text!r} is not on the page")

    def until(self, check: Callable[[], object], message: str) -> None:
        """Wait until a condition holds."""
        try:
            WebDriverWait(self.driver, _PATIENCE, 0.1).until(lambda _: check())
        except Exception as error:
            shown = f"{message}:\n{self.text()}"
            raise AssertionError(shown) from error

    def problems(self) -> list[str]:
        """Return errors of the console and requests that failed, since the page was opened."""
        found = [entry["message"] for entry in self._log("browser") if entry["level"] == "SEVERE"]
        for entry in self._log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.responseReceived":
                response = event["params"]["response"]
                if response["status"] >= 400:
                    found.append(f"{response['status']} {response['url']}")
        return found

    def hosts(self) -> set[str]:
        """Return the origins of all that the page has loaded."""
        script = "return performance.getEntries().map(e => e.name).filter(n => n.includes('://'))"
        return {"/".join(name.split("/")[:3]) for name in self.run(script)}

    def screenshot(self, path: Path, height: int | None = None) -> None:
        """Write a page as a picture: all of it, or its upper part."""
        root = "document.documentElement"
        width, whole = self.run(f"return [{root}.clientWidth, {root}.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height or whole, "scale": 1}
        found = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))

    def _log(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.driver.get_log(name)  # type: ignore[no-untyped-call]
        return found


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser, and end it with all its processes."""
    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(CHROMEDRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
