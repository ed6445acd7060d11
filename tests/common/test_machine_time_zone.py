"""The default of ``table.local-time-zone``: the time zone of the machine, as in Flink."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Configuration, Row
from millstream.configuration import machine_time_zone as module
from millstream.configuration import options
from millstream.configuration.machine_time_zone import machine_time_zone
from millstream.table import EnvironmentSettings, TableEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator

ZONES = Path("/usr/share/zoneinfo")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    module._name_of.cache_clear()
    time.tzset()


@pytest.mark.parametrize(
    ("variable", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        (":/usr/share/zoneinfo/Asia/Kolkata", "Asia/Kolkata"),
        ("Etc/UTC", "UTC"),
        ("XYZ-5:30", "+05:30"),
        ("XYZ3", "-03:00"),
    ],
)
def test_the_environment_variable(machine: pytest.MonkeyPatch, variable: str, zone: str) -> None:
    machine.setenv("TZ", variable)
    time.tzset()
    assert machine_time_zone() == zone


@pytest.mark.parametrize("copied", [False, True])
def test_a_link_to_a_zone_and_a_copy_of_it(
    machine: pytest.MonkeyPatch, tmp_path: Path, *, copied: bool
) -> None:
    if not (ZONES / "Asia" / "Tokyo").is_file():
        pytest.skip("this machine has no files of time zones")
    machine.delenv("TZ")
    local = tmp_path / "localtime"
    if copied:
        machine.setattr(module, "TZPATH", (str(tmp_path / "zones"),))
        (tmp_path / "zones" / "Asia").mkdir(parents=True)
        for target in (local, tmp_path / "zones" / "Asia" / "Tokyo"):
            shutil.copy(ZONES / "Asia" / "Tokyo", target)
    else:
        local.symlink_to(ZONES / "Asia" / "Tokyo")
    machine.setattr(module, "_LOCAL", str(local))
    assert machine_time_zone() == "Asia/Tokyo"


def test_a_machine_without_a_zone_has_utc(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.delenv("TZ")
    machine.setattr(module, "_LOCAL", str(tmp_path / "localtime"))
    assert machine_time_zone() == "UTC"


def test_it_is_the_default_of_the_option(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("TZ", "Asia/Tokyo")
    assert Configuration().get(options.LOCAL_TIME_ZONE) == "Asia/Tokyo"
    given = Configuration({"table.local-time-zone": "default"})
    assert given.get(options.LOCAL_TIME_ZONE) == "Asia/Tokyo"
    given.set_string("table.local-time-zone", "+02:00")
    assert given.get(options.LOCAL_TIME_ZONE) == "+02:00"


def first_value(env: TableEnvironment) -> Any:
    query = "SELECT CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING)"
    with env.execute_sql(query).collect() as rows:
        [row] = rows
        assert isinstance(row, Row)
        return row[0]


@pytest.mark.both_engines
def test_statements_go_by_it(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("TZ", "Asia/Tokyo")
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    assert env.get_config().get_local_timezone() == "Asia/Tokyo"
    assert first_value(env) == "1970-01-01 09:00:00.000"
    env.execute_sql("SET 'table.local-time-zone' = 'default'")
    assert first_value(env) == "1970-01-01 09:00:00.000"
    env.execute_sql("SET 'table.local-time-zone' = 'Europe/Berlin'")
    assert first_value(env) == "1970-01-01 01:00:00.000"
