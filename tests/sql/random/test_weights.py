"""No retraction is lost or made twice: what each operator of a query has given adds up.

A tap behind every operator over tables counts each row, +1 where it comes and -1 where it goes.  At
the end no sum is below zero, and of operators with one row per key none is above one.  The queries
are drawn at random; their results are held against DuckDB's elsewhere
(``tests/sql/random/test_random_queries.py``), so here two errors that cancel out are found as well.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.runtime.table_operators.running import changes_in
from tests.sql.random.random_queries import random_query
from tests.sql.random.random_tables import Run, Tables, collected

from millstream.errors import UnsupportedSqlError
from millstream.runtime.operators.table.base import (
    UPDATE_AFTER,
    UPDATE_BEFORE,
    TableOperator,
)
from millstream.runtime.operators.table.deduplicate import (
    ChangelogNormalizeOperator,
    DeduplicateOperator,
)
from millstream.runtime.operators.table.group_aggregate import (
    GroupAggregateOperator,
    LocalGroupAggregateOperator,
)
from millstream.runtime.operators.table.top_n import TopNOperator

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Output

#: Between them every kind of operator that updates.
SEEDS = [22, 9, 34]
_ONE_ROW = (ChangelogNormalizeOperator, DeduplicateOperator, GroupAggregateOperator)


class Given:
    """What all subtasks of one operator have given."""

    def __init__(self, operator: TableOperator) -> None:
        self.name = f"{operator.context.name} {operator.context.uid}"
        plan: Any = getattr(operator, "plan", getattr(operator, "_plan", None))
        self.has_one = isinstance(operator, _ONE_ROW) or (
            isinstance(operator, TopNOperator) and plan.output_rank
        )
        #: Whether it says that each +U follows a -U; None: its input says.
        self.update_before = getattr(
            plan, "update_before", getattr(operator, "_update_before", None)
        )
        self.weights: Counter[Any] = Counter()
        self.kinds: Counter[int] = Counter()

    def check(self) -> bool:
        """Whether it could be checked: a stream of upserts says nothing of rows before."""
        if self.kinds[UPDATE_AFTER] and not self.kinds[UPDATE_BEFORE]:
            assert not self.update_before, self.name
            return False
        wrong = {
            row: weight
            for row, weight in self.weights.items()
            if weight < 0 or (self.has_one and weight > 1)
        }
        assert not wrong, f"{self.name}: {wrong}"
        return True


class Tap:
    """The output of one subtask."""

    def __init__(self, output: Output, given: Given) -> None:
        self._output = output
        self._given = given

    def emit(self, batch: Batch) -> None:
        for kind, row in changes_in(batch):
            self._given.kinds[kind] += 1
            self._given.weights[repr(row)] += -1 if kind & 1 else 1
        self._output.emit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


@pytest.fixture
def taps(monkeypatch: pytest.MonkeyPatch) -> dict[str, Given]:
    found: dict[str, Given] = {}
    original = TableOperator.setup

    def setup(self: TableOperator, context: Any, output: Output) -> None:
        original(self, context, output)
        if isinstance(self, LocalGroupAggregateOperator):
            return  # partial sums are no rows
        self.output = Tap(self.output, found.setdefault(context.uid, Given(self)))

    monkeypatch.setattr(TableOperator, "setup", setup)
    return found


def run(seed: int, directory: Path, taps: dict[str, Given], *, lives_on: bool) -> Counter[str]:
    """Run the query of a seed; how many operators could be checked."""
    query, tables = random_query(seed), Tables(seed)
    print(f"seed {seed}\n{query.flink}")
    taps.clear()
    mini_batch = seed % 3 == 0
    once = Run(seed, mini_batch=mini_batch, starts=[(1 + 2 * (seed % 2), lives_on)])
    try:
        collected(tables, query.flink, once, directory)
    except UnsupportedSqlError:
        return Counter(refused=1)
    return Counter((given.check() and "checked") or "upserts" for given in taps.values())


def test_weights_of_every_operator(taps: dict[str, Given], tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    kinds: set[str] = set()
    for seed in SEEDS:
        directory = tmp_path / str(seed)
        directory.mkdir()
        found += run(seed, directory, taps, lives_on=seed == SEEDS[-1])
        kinds |= {given.name.split()[0] for given in taps.values()}
    print(found, kinds)
    assert found["checked"] > 4 * found["upserts"]
    assert {"ChangelogNormalize", "GroupAggregate", "Join", "Rank"} <= kinds


def test_a_retraction_that_is_lost_is_found(
    taps: dict[str, Given], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = GroupAggregateOperator.emit_columns

    def emit(self: Any, columns: Any, kinds: Any = None) -> None:
        if kinds is not None:
            kinds = kinds.copy()
            kinds[kinds == UPDATE_BEFORE] = 0
        original(self, columns, kinds)

    monkeypatch.setattr(GroupAggregateOperator, "emit_columns", emit)
    with pytest.raises(AssertionError, match=r"Calc|Join|GroupAggregate"):
        run(34, tmp_path, taps, lives_on=False)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_weights_for_long(taps: dict[str, Given], tmp_path: Path) -> None:
    end = time.monotonic() + float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
    seed, found, failed = int(time.time()), Counter[str](), list[str]()
    while time.monotonic() < end:
        seed += 1
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            found += run(seed, directory, taps, lives_on=seed % 5 == 0)
        except Exception as error:  # noqa: BLE001 - all seeds are tried
            failed.append(f"{seed}: {type(error).__name__}: {str(error)[:300]}")
        shutil.rmtree(directory)
    print(found, failed)
    assert not failed
