"""Results that clients fetch slowly or not at all take bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.sql_gateway.conftest import Client, Refused, until

from millstream.sql_gateway.results import PAGE_ROWS, QueryRows
from millstream.sql_gateway.sessions import MOST_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql_gateway.gateway import SqlGateway

ROWS = 60_000


def test_a_result_that_nobody_fetches_is_not_held_in_memory(
    start_gateway: Callable[..., SqlGateway],
) -> None:
    gateway = start_gateway()
    client = Client(gateway.url)
    session = client.open()
    client.rows(
        session,
        "CREATE TABLE many (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000000',"
        f" 'number-of-rows' = '{ROWS}', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1',"
        f" 'fields.n.end' = '{ROWS}')",
    )
    operation = client.submit(session, "SELECT n FROM many")
    running = gateway.sessions.get(session).operation(operation)
    assert running.wait(30)
    result = running.result()
    assert isinstance(result, QueryRows)
    until(lambda: result._job.get_job_status().is_terminal_state(), bool)
    assert sum(map(len, result._ahead)) <= 2 * PAGE_ROWS
    assert result._reader.is_alive()
    # A slow client gets all of it.
    found, token = [], 0
    while True:
        page = client.page(session, operation, token)
        if page["resultType"] == "EOS":
            break
        assert len(page["results"]["data"]) <= PAGE_ROWS
        found += [each["fields"][0] for each in page["results"]["data"]]
        token += 1
    assert found == list(range(1, ROWS + 1))
    assert not result.is_live


def test_operations_that_are_never_closed_are_dropped(client: Client) -> None:
    session = client.open()
    first = client.submit(session, "SHOW TABLES")
    until(lambda: client.status(session, first), lambda status: status == "FINISHED")
    last = [client.submit(session, "SHOW TABLES") for _ in range(MOST_OPERATIONS)][-1]
    until(lambda: client.status(session, last), lambda status: status == "FINISHED")
    with pytest.raises(Refused, match="Can not find the submitted operation"):
        client.status(session, first)
