"""Take the pictures of the documentation: ``python -m tests.ui.pictures``; needs Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.ui.browser import open_browser
from tests.ui.example_answers import KEYED
from tests.ui.example_server import JOB_PAGE, ExampleServer

DIRECTORY: Final = Path(__file__).parents[2] / "docs" / "pictures"
#: Name -> address, a text that is on the page when it is complete, and height in pixels.
PICTURES: Final = {
    "ui-jobs": ("#/jobs", "orders-revenue", 420),
    "ui-job": (JOB_PAGE, "holds up the tasks before it", 860),
    "ui-subtasks": (f"{JOB_PAGE}/tasks/{KEYED}", "Skewed", 1000),
    "ui-checkpoints": (f"{JOB_PAGE}/checkpoints", "Completed", 860),
    "ui-exceptions": (f"{JOB_PAGE}/exceptions", "amount is negative", 860),
}
_WIDTH: Final = 1200


def main() -> None:
    """Write each picture as a PNG."""
    with ExampleServer() as server, open_browser() as browser:
        for name, (address, text, height) in PICTURES.items():
            browser.open(f"{server.url}/{address}", size=(_WIDTH, height))
            browser.wait_for(text)
            browser.screenshot(DIRECTORY / f"{name}.png", height=height)


if __name__ == "__main__":
    main()
