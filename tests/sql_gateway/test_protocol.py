"""The protocol: sessions, statements, pages of results, errors, and what is refused."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import pytest
from tests.sql_gateway.conftest import Client, Refused, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.sql_gateway.gateway import SqlGateway

NUMBERS = "SELECT * FROM (VALUES (1, 'a'), (2, CAST(NULL AS STRING))) AS t (n, s)"
ENDLESS = (
    "CREATE TABLE endless (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50',"
    " 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '100000000')"
)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_query_in_every_version(client: Client, version: int) -> None:
    client.version = version
    session = client.open()
    rows = client.rows(session, NUMBERS, "JSON")
    assert rows == [["INSERT", 1, "a"], ["INSERT", 2, None]]
    assert client.call("DELETE", f"/sessions/{session}") == {"status": "CLOSED"}
    assert client.call("GET", "/info")["productName"] == "Millstream"


def test_clients_negotiate_a_version_that_all_of_them_know(client: Client) -> None:
    assert client.call("GET", "/v1/api_versions") == {"versions": ["V1", "V2"]}


def test_a_page_has_columns_kind_job_and_the_address_of_the_next(client: Client) -> None:
    session = client.open()
    operation = client.submit(session, NUMBERS)
    page = client.first(session, operation)
    base = f"/v2/sessions/{session}/operations/{operation}/result/"
    assert page["nextResultUri"] == base + "1?rowFormat=JSON"
    assert page["isQueryResult"] is True
    assert page["resultKind"] == "SUCCESS_WITH_CONTENT"
    assert len(page["jobID"]) == 32
    assert [each["name"] for each in page["results"]["columns"]] == ["n", "s"]
    assert client.status(session, operation) == "FINISHED"
    assert client.page(session, operation, 0)["results"] == page["results"]
    token, end = 1, page
    while end["resultType"] != "EOS":
        token = int(end["nextResultUri"].partition("/result/")[2].partition("?")[0])
        end = client.page(session, operation, token)
    assert "nextResultUri" not in end
    assert end["results"]["data"] == []
    with pytest.raises(Refused, match=f"Expecting token to be {token} or {token - 1}, but found"):
        client.page(session, operation, token + 7)


def test_text_is_as_the_shell_prints_it(client: Client) -> None:
    session = client.open()
    statement = "SELECT TRUE, CAST(NULL AS INT), TIMESTAMP '2024-01-02 03:04:05', INTERVAL '1' DAY"
    rows = client.rows(session, statement, "PLAIN_TEXT")
    assert rows == [["INSERT", "TRUE", "<NULL>", "2024-01-02 03:04:05", "+1 00:00:00.000"]]


def test_changes_have_their_kinds(client: Client) -> None:
    session = client.open()
    statement = "SELECT COUNT(*) FROM (VALUES (1), (2)) AS t (n)"
    assert client.rows(session, statement)[-1] == ["UPDATE_AFTER", 2]
    client.rows(session, "SET 'execution.runtime-mode' = 'batch'")
    assert client.rows(session, statement) == [["INSERT", 2]]


def test_statements_without_rows(client: Client) -> None:
    session = client.open()
    operation = client.submit(session, "CREATE TABLE t (n INT) WITH ('connector' = 'datagen')")
    page = client.first(session, operation)
    assert page["resultKind"] == "SUCCESS"
    assert page["isQueryResult"] is False
    assert page["results"]["data"] == [{"kind": "INSERT", "fields": ["OK"]}]
    assert client.rows(session, "SHOW TABLES") == [["INSERT", "t"]]
    assert ["INSERT", "n", "INT", True, None, None, None] in client.rows(session, "DESCRIBE t")


def test_an_error_has_the_place_in_the_statement(client: Client) -> None:
    session = client.open()
    operation = client.submit(session, "SELECT *\nFROM nosuch")
    until(lambda: client.status(session, operation), lambda status: status == "ERROR")
    with pytest.raises(Refused) as refused:
        client.page(session, operation, 0)
    assert refused.value.status == 500
    assert "line 2, column 6: Table 'nosuch' not found" in refused.value.errors[1]


def test_a_query_that_fails_while_it_runs(client: Client) -> None:
    session = client.open()
    with pytest.raises(Refused, match=r"CAST.*fails where") as refused:
        client.rows(session, "SELECT CAST(s AS INT) FROM (VALUES ('1'), ('x')) AS t (s)")
    assert refused.value.status == 500


def test_a_statement_set_comes_statement_by_statement(client: Client, tmp_path: Path) -> None:
    session = client.open(**{"table.dml-sync": "true"})
    for name in ("a", "b"):
        client.rows(
            session,
            f"CREATE TABLE {name} (n INT) WITH ('connector' = 'filesystem', 'format' = 'json',"
            f" 'path' = '{tmp_path / name}')",
        )
    for each in ("BEGIN STATEMENT SET;", "INSERT INTO a VALUES 1;", "INSERT INTO b VALUES 2"):
        assert client.rows(session, each) == [["INSERT", "OK"]]
    with pytest.raises(Refused, match="Only INSERT statements"):
        client.rows(session, "SELECT 1")
    [[_, job]] = client.rows(session, "END;")
    assert client.jobs(session) == {job: "FINISHED"}
    assert client.rows(session, "SELECT n FROM a UNION ALL SELECT n FROM b")


def test_options_for_one_statement(client: Client) -> None:
    session = client.open()
    counted = "SELECT COUNT(*) FROM (VALUES (1), (2)) AS t (n)"
    rows = client.rows(session, counted, executionConfig={"execution.runtime-mode": "batch"})
    assert rows == [["INSERT", 2]]
    properties = client.call("GET", f"/sessions/{session}")["properties"]
    assert "execution.runtime-mode" not in properties


def test_configuring_a_session(client: Client) -> None:
    session = client.open(**{"table.local-time-zone": "UTC", "rest.port": "8081"})
    path = f"/sessions/{session}/configure-session"
    client.call("POST", path, {"statement": "SET 'pipeline.name' = 'p'"})
    properties = client.call("GET", f"/sessions/{session}")["properties"]
    assert properties["pipeline.name"] == "p"
    assert properties["table.local-time-zone"] == "UTC"
    assert "rest.port" not in properties
    with pytest.raises(Refused, match="Unsupported statement for configuring session"):
        client.call("POST", path, {"statement": "SELECT 1"})


def test_completion(client: Client) -> None:
    session = client.open()
    client.rows(session, "CREATE TABLE orders (n INT) WITH ('connector' = 'datagen')")
    body = {"statement": "SELECT * FROM ord", "position": 17}
    found = client.call("GET", f"/sessions/{session}/complete-statement", body)
    assert found == {"candidates": ["orders"]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/sessions/{}/statements", {"statement": 1}, 400),
        ("POST", "/sessions/{}/statements", {"statement": "SELECT 1", "executionTimeout": 5}, 400),
        ("POST", "/sessions/{}/statements", [], 400),
        ("GET", "/sessions/{}/operations/x/status", None, 404),
        ("GET", "/sessions/x", None, 404),
        ("GET", "/nosuch", None, 404),
        ("POST", "/v3/sessions/{}/materialized-tables/a/refresh", {}, 501),
        ("POST", "/v4/sessions/{}/scripts", {"script": "SELECT 1"}, 501),
        ("POST", "/v2/sessions/{}/scripts", {"script": "SELECT 1"}, 404),
    ],
)
def test_refusals(client: Client, method: str, path: str, body: object, status: int) -> None:
    session = client.open()
    with pytest.raises(Refused) as refused:
        client.call(method, path.format(session), body)
    assert refused.value.status == status
    assert refused.value.errors


def test_a_query_is_cancelled_and_closed(client: Client) -> None:
    session = client.open()
    client.rows(session, ENDLESS)
    operation = client.submit(session, "SELECT * FROM endless")
    job = client.first(session, operation)["jobID"]
    assert client.jobs(session)[job] == "RUNNING"
    path = f"/sessions/{session}/operations/{operation}"
    assert client.call("POST", f"{path}/cancel") == {"status": "CANCELED"}
    assert job not in client.jobs(session)
    with pytest.raises(Refused, match="CANCELED"):
        client.page(session, operation, 0)
    assert client.call("DELETE", f"{path}/close") == {"status": "CLOSED"}
    with pytest.raises(Refused, match="Can not find the submitted operation"):
        client.status(session, operation)


def test_an_insert_that_is_waited_for_is_cancelled(client: Client) -> None:
    session = client.open(**{"table.dml-sync": "true"})
    client.rows(session, ENDLESS)
    client.rows(session, "CREATE TABLE hole (n BIGINT) WITH ('connector' = 'blackhole')")
    operation = client.submit(session, "INSERT INTO hole SELECT * FROM endless")
    other = client.open()
    until(lambda: client.jobs(other), lambda jobs: "RUNNING" in jobs.values())
    assert client.status(session, operation) == "RUNNING"
    client.call("POST", f"/sessions/{session}/operations/{operation}/cancel")
    until(lambda: client.jobs(other), lambda jobs: set(jobs.values()) == {"CANCELED"})


def test_a_job_goes_on_without_its_session_and_another_one_stops_it(client: Client) -> None:
    session = client.open()
    client.rows(session, ENDLESS)
    client.rows(session, "CREATE TABLE hole (n BIGINT) WITH ('connector' = 'blackhole')")
    [[_, job]] = client.rows(session, "INSERT INTO hole SELECT * FROM endless")
    query = client.first(session, client.submit(session, "SELECT * FROM endless"))["jobID"]
    client.call("DELETE", f"/sessions/{session}")
    other = client.open()
    assert client.jobs(other) == {job: "RUNNING"}
    assert query != job
    client.rows(other, f"STOP JOB '{job}'")
    assert client.jobs(other) == {job: "CANCELED"}


def test_sessions_do_not_see_each_other(client: Client) -> None:
    one, two = client.open(), client.open()
    client.rows(one, "CREATE TEMPORARY VIEW v AS SELECT 1 AS n")
    client.rows(one, "SET 'pipeline.name' = 'mine'")
    operation = client.submit(one, "SHOW VIEWS")
    assert client.rows(two, "SHOW VIEWS") == []
    assert "pipeline.name" not in client.call("GET", f"/sessions/{two}")["properties"]
    for path in ("status", "result/0?rowFormat=JSON"):
        with pytest.raises(Refused) as refused:
            client.call("GET", f"/sessions/{two}/operations/{operation}/{path}")
        assert refused.value.status == 404


def test_an_idle_session_is_closed_and_its_query_ends(
    start_gateway: Callable[..., SqlGateway],
) -> None:
    gateway = start_gateway(
        **{
            "sql-gateway.session.idle-timeout": "300 ms",
            "sql-gateway.session.check-interval": "20 ms",
        }
    )
    client = Client(gateway.url)
    session = client.open()
    client.rows(session, ENDLESS)
    operation = client.submit(session, "SELECT * FROM endless")
    running = gateway.sessions.get(session).operation(operation)
    assert running.wait(30)
    until(lambda: running.status.value, lambda status: status == "CLOSED")
    with pytest.raises(Refused, match="does not exist"):
        client.call("POST", f"/sessions/{session}/heartbeat")


def test_there_is_a_limit_of_sessions(start_gateway: Callable[..., SqlGateway]) -> None:
    client = Client(start_gateway(**{"sql-gateway.session.max-num": "1"}).url)
    session = client.open()
    with pytest.raises(Refused, match="exceeds the max count"):
        client.open()
    client.call("DELETE", f"/sessions/{session}")
    client.open()


def test_nobody_without_the_token(start_gateway: Callable[..., SqlGateway], tmp_path: Path) -> None:
    token = "0123456789abcdef0123"
    (tmp_path / "token").write_text(token)
    url = start_gateway(**{"millstream.rest.token-file": str(tmp_path / "token")}).url
    session = Client(url, headers={"Authorization": f"Bearer {token}"}).open()
    for headers in ({}, {"Authorization": "Bearer 0123456789abcdef0124"}):
        stranger = Client(url, headers=headers)
        for method, path in [
            ("GET", "/info"),
            ("GET", "/api_versions"),
            ("POST", "/sessions"),
            ("GET", f"/sessions/{session}"),
            ("DELETE", f"/sessions/{session}"),
            ("POST", f"/sessions/{session}/statements"),
        ]:
            with pytest.raises(Refused) as refused:
                stranger.call(
                    method, path, None if method != "POST" else {"statement": "SHOW JOBS"}
                )
            assert refused.value.status == 401


def test_pages_of_other_origins_and_names_are_refused(client: Client) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        stranger = Client(client.url, headers=headers)
        with pytest.raises(Refused) as refused:
            stranger.open()
        assert refused.value.status == 403


def test_beyond_this_machine_a_token_is_needed(start_gateway: Callable[..., SqlGateway]) -> None:
    from millstream.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match="needs a token"):
        start_gateway(**{"sql-gateway.endpoint.rest.bind-address": "0.0.0.0"})


def test_a_body_that_is_no_json(client: Client) -> None:
    request = urllib.request.Request(f"{client.url}/v2/sessions", b"{", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        client._opener.open(request, timeout=30)
    assert refused.value.code == 400
    assert "not JSON" in json.loads(refused.value.read())["errors"][0]
