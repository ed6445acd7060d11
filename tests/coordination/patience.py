"""Clients that have little patience with a server while it hangs, and much with one that is slow.

What it is: limits of the connectors that follow a proxy.  A sink that was given half a second for
everything would fail on a busy machine before the server hangs, or when it goes on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from kafka.net.manager import KafkaConnectionManager

from millstream.connectors.kafka import producers
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.connectors.postgres.sessions import limited_connection
from millstream.connectors.postgres.table import PostgresTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest
    from tests.coordination.proxy import HangingProxy

__all__ = ["LONG", "SHORT", "limit_kafka", "limit_postgres"]

#: Seconds for a server that answers.
LONG: Final = 60.0
#: Seconds for one that hangs.
SHORT: Final = 0.5


def _of(proxy: HangingProxy) -> float:
    return SHORT if proxy.hanging else LONG


def limit_kafka(proxy: HangingProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit transactional producers, and the driver's connection to their coordinator."""
    address = f"127.0.0.1:{proxy.port}"
    producers_own, send = producers.patience_of, KafkaConnectionManager.send

    def of_producers(properties: Mapping[str, str]) -> float:
        known = properties["bootstrap.servers"] == address
        return _of(proxy) if known else producers_own(properties)

    def of_control(control: Any) -> float:
        known = control._properties["bootstrap.servers"] == address
        own: float = vars(control)["_patience"]
        return _of(proxy) if known else own

    def remember(control: Any, seconds: float) -> None:
        vars(control)["_patience"] = seconds

    def limited(
        manager: Any, request: Any, node_id: Any = None, request_timeout_ms: int | None = None
    ) -> Any:
        if manager.config["bootstrap_servers"] == address:
            request_timeout_ms = int(_of(proxy) * 1000)
        return send(manager, request, node_id, request_timeout_ms)

    monkeypatch.setattr(producers, "patience_of", of_producers)
    control = property(of_control, remember)
    monkeypatch.setattr(TransactionControl, "_patience", control, raising=False)
    monkeypatch.setattr(KafkaConnectionManager, "send", limited)


def limit_postgres(proxy: HangingProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit new connections and those that there are."""

    def of_table(table: PostgresTable) -> float:
        own: float = vars(table)["timeout"]
        return _of(proxy) if f":{proxy.port}/" in table.conninfo else own

    def remember(table: PostgresTable, seconds: float) -> None:
        vars(table)["timeout"] = seconds

    def of_session(session: Any) -> tuple[float, float]:
        port, silence, end = vars(session).get("limits", (0, math.inf, math.inf))
        return (_of(proxy) if port == proxy.port else silence), end

    def limit(session: Any, limits: tuple[float, float]) -> None:
        vars(session)["limits"] = (session.info.port, *limits)

    monkeypatch.setattr(PostgresTable, "timeout", property(of_table, remember))
    monkeypatch.setattr(limited_connection(), "millstream_limits", property(of_session, limit))
