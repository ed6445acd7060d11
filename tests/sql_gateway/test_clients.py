"""Clients that others wrote: Flink's SQL client and dbt with its adapter for Flink.

Flink's package on PyPI has the SQL client, but not the classes of its gateway, which the client
needs: ``FLINK_SQL_CLIENT`` is a command that starts a complete one. ``DBT_FLINK`` is the command
``dbt`` of an environment with ``dbt-flink-adapter`` (Python 3.9); else ``build/dbt/bin/dbt`` is it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sql_gateway.conftest import Client

    from millstream.sql_gateway.gateway import SqlGateway

pytestmark = pytest.mark.extended

_FLINK = os.environ.get("FLINK_SQL_CLIENT", "")
_DBT = os.environ.get("DBT_FLINK", "build/dbt/bin/dbt")
_SCRIPT = """
SET 'sql-client.execution.result-mode' = 'tableau';
CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3',
  'fields.a.kind' = 'sequence', 'fields.a.start' = '1', 'fields.a.end' = '3');
SHOW TABLES;
DESCRIBE t;
EXPLAIN SELECT a FROM t;
SELECT COUNT(*) AS n, CAST(NULL AS INT) AS missing FROM t;
SET 'execution.runtime-mode' = 'batch';
SELECT a, a * 2 AS twice FROM t ORDER BY a;
CREATE TABLE s (a INT) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{path}');
SET 'table.dml-sync' = 'true';
INSERT INTO s SELECT a FROM t;
EXECUTE STATEMENT SET BEGIN
INSERT INTO s SELECT a + 10 FROM t;
INSERT INTO s SELECT a + 20 FROM t;
END;
SHOW JOBS;
SELECT SUM(a) AS total FROM s;
SELECT * FROM nosuch;
"""


def _run(command: list[str], **more: object) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,  # type: ignore[call-overload]
    )
    return str(done.stdout + done.stderr)


@pytest.mark.skipif(not _FLINK, reason="FLINK_SQL_CLIENT is not set")
@pytest.mark.parametrize("typed", [False, True])
def test_the_sql_client_of_flink(client: Client, tmp_path: Path, typed: bool) -> None:
    script = tmp_path / "script.sql"
    script.write_text(_SCRIPT.format(path=tmp_path / "s"))
    command = [_FLINK, "gateway", "-e", client.url]
    shown = (
        _run(command, input=script.read_text()) if typed else _run([*command, "-f", str(script)])
    )
    for expected in (
        "|          t |",
        "INT | TRUE |",
        "TableSourceScan(table=[[default_catalog, default_database, t]]",
        "| +U |                    3 |      <NULL> |",
        "| 3 |     6 |",
        "FINISHED",
        "|   108 |",
        "Table 'nosuch' not found",
    ):
        assert expected in shown, shown
    # Its session is closed, and its jobs are known to the next.
    assert set(client.jobs(client.open()).values()) == {"FINISHED"}


_PROJECT = {
    "dbt_project.yml": """
name: shop
version: 1.0.0
config-version: 2
profile: shop
seeds:
  shop:
    +default_connector_properties:
      {connector: filesystem, format: json, path: '%(out)s/orders'}
models: {shop: {+materialized: table}}
""",
    "profiles.yml": """
shop:
  target: dev
  outputs:
    dev: {type: flink, host: 127.0.0.1, port: %(port)s, session_name: shop,
          database: default_catalog, schema: default_database}
""",
    "seeds/orders.csv": "id,city,amount\n1,Berlin,10\n2,Paris,20\n3,Berlin,5\n",
    "models/totals.sql": """
{{ config(materialized='table', connector_properties={
    'connector': 'filesystem', 'format': 'json', 'path': '%(out)s/totals'}) }}
select /** mode('batch') */ city, sum(amount) as total from {{ ref('orders') }} group by city
""",
    "models/big.sql": """
{{ config(materialized='view') }}
select city, total from {{ ref('totals') }} where total > 16
""",
    "tests/no_negative.sql": "select * from {{ ref('orders') }} where amount < 0\n",
    "tests/only_small.sql": "select * from {{ ref('big') }}\n",
}


@pytest.mark.skipif(not Path(_DBT).exists(), reason="dbt is neither DBT_FLINK nor in build/dbt")
def test_dbt(start_gateway: Callable[..., SqlGateway], tmp_path: Path) -> None:
    gateway = start_gateway(**{"table.dml-sync": "true"})
    places = {"out": tmp_path / "out", "port": gateway.url.rpartition(":")[2]}
    for name, content in _PROJECT.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content % places)
    (tmp_path / "home" / ".dbt").mkdir(parents=True)
    environment = {
        "HOME": str(tmp_path / "home"),
        "PATH": os.environ["PATH"],
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    }

    def dbt(command: str) -> str:
        arguments = [str(Path(_DBT).absolute()), "--no-use-colors", command, "--profiles-dir", "."]
        return _run(arguments, cwd=tmp_path / "project", env=environment)

    assert "PASS=1 WARN=0 ERROR=0" in dbt("seed")
    assert "PASS=2 WARN=0 ERROR=0" in dbt("run")
    shown = dbt("test")
    assert "PASS=1 WARN=0 ERROR=1" in shown, shown
    assert "Got 1 result, configured to fail if != 0" in shown
