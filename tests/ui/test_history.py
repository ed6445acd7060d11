"""``millstream ui`` in Chromium: a job that has ended, from its checkpoint directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.environments import environments, wait_until

from millstream.cli.ui_command import ui_server
from millstream.common import WatermarkStrategy
from millstream.datastream.connectors import NumberSequenceSource

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ui.browser import Browser

pytestmark = pytest.mark.extended


def test_a_job_that_has_ended_is_shown(browser: Browser, tmp_path: Path) -> None:
    settings = {
        "execution.target": "local",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "rest.port": "0",
    }
    env = environments(tmp_path, settings)(1)
    source = NumberSequenceSource(0, 10**12)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").filter(
        lambda number: number < 0
    ).name("none of them").print()
    job = env.execute_async("yesterday's job").job
    wait_until(lambda: job.get_last_checkpoint() is not None, "a checkpoint", 60)
    job.cancel()
    server = ui_server([str(tmp_path / "checkpoints")], "0")
    server.start()
    try:
        browser.open(f"{server.url}/#/jobs")
        browser.wait_for("yesterday's job")
        browser.wait_for("Canceled")
        page = f"{server.url}/#/jobs/{job.get_job_id()}"
        browser.open(page)
        browser.wait_for("none of them")
        browser.open(f"{page}/checkpoints")
        browser.wait_for("Completed")
        assert browser.problems() == []
    finally:
        server.close()
