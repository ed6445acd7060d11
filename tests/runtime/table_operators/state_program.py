"""State of every operator of tables that is kept, one file per release, and how it is written.

Operators are fed halfway, in the operator harness, and their state is kept.  ``python -m
tests.keep`` writes that of this release.  The state of jobs: ``tests/checkpoint/kept_program.py``.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.runtime.table_operators.model import UA, UB, D, I
from tests.runtime.table_operators.running import TableHarness
from tests.runtime.table_operators.test_match import ROWS as MATCHED
from tests.runtime.table_operators.test_match import VARIABLES
from tests.runtime.table_operators.test_match import plan_of as match_of
from tests.runtime.table_operators.test_windows import PLAIN, TIME, at

from millstream.runtime.columnar.table_windows import TableWindow, WindowKind
from millstream.runtime.operators.table.deduplicate import (
    ChangelogNormalizeFactory,
    DeduplicateFactory,
)
from millstream.runtime.operators.table.group_aggregate import GroupAggregateFactory
from millstream.runtime.operators.table.join import JoinFactory
from millstream.runtime.operators.table.joins_by_time import (
    IntervalJoinFactory,
    TemporalJoinFactory,
)
from millstream.runtime.operators.table.over import OverFactory, UpdatingOverFactory
from millstream.runtime.operators.table.row_patterns import RowPattern
from millstream.runtime.operators.table.session_windows import WindowAggregateFactory
from millstream.runtime.operators.table.sink_materializer import SinkMaterializerFactory
from millstream.runtime.operators.table.sort import FinalRowsFactory, TemporalSortFactory
from millstream.runtime.operators.table.specs import (
    AggregateCall,
    JoinKind,
    JoinSide,
    RankStrategy,
    SortColumn,
)
from millstream.runtime.operators.table.top_n import TopNFactory, WindowRankFactory
from millstream.runtime.operators.table.window_join import WindowJoinFactory
from millstream.types.bitmaps import BitmapType, bitmap_bytes, bitmap_of_values
from millstream.types.logical_types import (
    BigIntType,
    BooleanType,
    DecimalType,
    IntType,
    RowType,
    VarCharType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.runtime.table_operators.model import Change

    from millstream.contracts.operator import OperatorFactory

__all__ = ["CASES", "KEPT", "Case", "halfway", "read", "results", "write"]

#: Where it is kept.
KEPT: Final = Path(__file__).parent / "kept-state"

_NUMBER: Final = BigIntType()
_ROWS: Final = RowType.of(
    k=VarCharType(5),
    t=TIME,
    n=_NUMBER,
    d=DecimalType(6, 2),
    s=VarCharType(9),
    b=BooleanType(),
    id=BigIntType(nullable=False),
)
_K, _T, _N, _D, _S, _B, _ID = range(7)
_HALF: Final = 24


def _row(number: int, shift: int = 0) -> tuple[Any, ...]:
    return (
        None if number % 7 == 3 else "abc"[number % 3] if number % 5 else str(number // 10),
        at(4 * number + number * 5 % 11),
        None if number % 5 == 4 else (number + shift) % 4,
        None if number % 6 == 5 else Decimal(number * 17 % 40 - 20) / 4,
        ("", "ä", "bb", None)[(number + shift) % 4],
        (True, False, None)[number % 3],
        number,
    )


def _inserts(start: int) -> list[Change]:
    return [(I, _row(number)) for number in range(start, start + _HALF)]


def _changes(start: int) -> list[Change]:
    """Inserts, updates of some and deletions of others, also of rows of the first half."""
    found = _inserts(start)
    for number in range(max(0, start - 6), start + _HALF - 8, 3):
        if number % 2:
            found.append((D, _row(number)))
        else:
            found += [(UB, _row(number)), (UA, _row(number, 1))]
    return found


def _upserts(start: int) -> list[Change]:
    """By ``id``: updates without -U."""
    return [change for change in _changes(start) if change[0] != UB]


@dataclass(frozen=True)
class Case:
    """An operator, and what it gets in either half."""

    factory: OperatorFactory
    output: Sequence[Any]
    #: Of each input.
    feeds: Any = (_inserts,)
    row: RowType = _ROWS

    def run(self, harness: TableHarness, half: int) -> None:
        """Feed a half, with a watermark in its midst, which leaves something open."""
        for index, feed in enumerate(self.feeds):
            changes = feed(half * _HALF)
            cut = len(changes) // 2
            harness.feed(changes[:cut], index)
            harness.feed(changes[cut:], index)
        harness.watermark(4 * half * _HALF + 61)
        if half:
            harness.watermark(10_000)

    def harness(self, max_parallelism: int = 128) -> TableHarness:
        """An operator that has had nothing."""
        return TableHarness(
            self.factory,
            self.row,
            self.output,
            long_lived=False,
            max_parallelism=max_parallelism,
        )


def _call(function: str, *arguments: int, **options: Any) -> AggregateCall:
    kind = _ROWS.children[arguments[0]] if arguments and function != "COUNT" else _NUMBER
    return AggregateCall(function, arguments, kind, **options)


_ADDED: Final = (
    _call("COUNT"),
    _call("SUM", _N),
    _call("AVG", _D),
    _call("MIN", _S),
    _call("MAX", _N, filter=_B),
)
_DISTINCT: Final = (_call("COUNT", _N, distinct=True), _call("SUM", _N, distinct=True, filter=_B))
_EDGES: Final = (_call("FIRST_VALUE", _S), _call("LAST_VALUE", _N))
_LISTS: Final = (AggregateCall("LISTAGG", (_S,), VarCharType(2**31 - 1)),)
_ORDER: Final = (SortColumn(_N, descending=True), SortColumn(_S))
_TYPES: Final = list(_ROWS.children)
_BOTH: Final = [*_TYPES, *_TYPES]


def _grouped(calls: Sequence[AggregateCall], *, retracts: bool) -> Case:
    factory = GroupAggregateFactory(_ROWS, (_K,), tuple(calls), retracts, update_before=True)
    output = [_TYPES[_K], *(call.type for call in calls)]
    return Case(factory, output, (_changes if retracts else _inserts,))


def _windowed(kind: str, step: int | None, calls: Sequence[AggregateCall]) -> Case:
    spec = TableWindow(WindowKind[kind], 12 if kind == "SESSION" else 60, step)
    names = ("window_start", "window_end")
    factory = WindowAggregateFactory(_ROWS, spec, _T, (_K,), tuple(calls), names)
    return Case(factory, [_TYPES[_K], *(call.type for call in calls), PLAIN, PLAIN])


def _joined(kind: str, left: JoinSide, right: JoinSide) -> Case:
    factory = JoinFactory(_ROWS, _ROWS, JoinKind[kind], left, right, (True,))
    output = _TYPES if kind in {"SEMI", "ANTI"} else _BOTH
    return Case(factory, output, (_changes, _changes))


def _top(strategy: RankStrategy, feed: Any, **options: Any) -> Case:
    factory = TopNFactory(_ROWS, (_K,), _ORDER, 1, 3, True, strategy, update_before=True, **options)
    return Case(factory, [*_TYPES, BigIntType(nullable=False)], (feed,))


def _first(rowtime: int | None, *, last: bool) -> Case:
    factory = DeduplicateFactory(_ROWS, (_K,), rowtime, last, update_before=True)
    return Case(factory, _TYPES)


def _over(preceding: int | None, *, is_rows: bool) -> Case:
    calls = (*_ADDED[:3], _DISTINCT[0])
    factory = OverFactory(_ROWS, (_K,), calls, _T, is_rows=is_rows, preceding=preceding)
    return Case(factory, [*_TYPES, *(call.type for call in calls)])


def _updating(preceding: int | None) -> Case:
    factory = UpdatingOverFactory(
        _ROWS, (_K,), _ORDER, _ADDED, is_rows=True, update_before=True, preceding=preceding
    )
    return Case(factory, [*_TYPES, *(call.type for call in _ADDED)], (_changes,))


_OF_BITMAPS: Final = RowType.of(k=VarCharType(5), n=IntType(), b=BitmapType())


def _bitmaps(start: int) -> list[Change]:
    """Numbers and bitmaps of rows that come, and of some that are taken back."""

    def row(number: int) -> tuple[Any, ...]:
        numbers = {number % 9, number % 4, 70_000, -(number % 3)}
        bitmap = bitmap_bytes(bitmap_of_values(numbers)) if number % 5 else None
        return ("abc"[number % 3], None if number % 7 == 2 else number * 13 % 10, bitmap)

    taken = [(D, row(number)) for number in range(max(0, start - 6), start + _HALF - 8, 3)]
    return [*((I, row(number)) for number in range(start, start + _HALF)), *taken]


def _grouped_bitmaps(*, retracts: bool) -> Case:
    calls = [
        AggregateCall(
            f"BITMAP_{each}_{what}AGG",
            (1 if each == "BUILD" else 2,),
            _NUMBER if what else BitmapType(),
        )
        for each in ("BUILD", "AND", "OR", "XOR")
        for what in ("", "CARDINALITY_")
    ]
    factory = GroupAggregateFactory(_OF_BITMAPS, (0,), tuple(calls), retracts, update_before=True)
    output = [VarCharType(5), *(call.type for call in calls)]

    def inserts(start: int) -> list[Change]:
        return [each for each in _bitmaps(start) if each[0] == I]

    return Case(factory, output, (_bitmaps if retracts else inserts,), _OF_BITMAPS)


_SIDE: Final = JoinSide((_K,))
_KEYED: Final = JoinSide((_K,), (_ID,))
_TIMED: Final = (_ROWS, _ROWS, JoinKind.LEFT, _SIDE, _SIDE, (True,))
_WITH_END: Final = RowType.of(**{each.name: each.type for each in _ROWS.fields[:-1]}, e=PLAIN)


def _ends(start: int) -> list[Change]:
    """Rows that have their window's end."""
    return [
        (kind, (*row[:-1], at(60 * (1 + (row[_T] - at(0)).microseconds // 60_000))))
        for kind, row in _inserts(start)
    ]


def _matched(start: int) -> list[Change]:
    return [(I, ("ab"[n % 2], at(3 * n), 1 + n % 5)) for n in range(start, start + _HALF)]


def _cases() -> dict[str, Case]:
    match = match_of(RowPattern(VARIABLES))
    measures = [each.type for each in match.measures]
    window = (_WITH_END, _WITH_END, JoinKind.FULL, _SIDE, _SIDE, (True,), (_ID, _ID))
    with_end = list(_WITH_END.children)
    return {
        "groups": _grouped([*_ADDED, *_DISTINCT, *_EDGES, *_LISTS], retracts=False),
        "groups of changes": _grouped([*_ADDED, *_DISTINCT, *_EDGES, *_LISTS], retracts=True),
        "bitmaps": _grouped_bitmaps(retracts=False),
        "bitmaps of changes": _grouped_bitmaps(retracts=True),
        "tumbling": _windowed("TUMBLE", None, [*_ADDED, *_EDGES]),
        "tumbling distinct": _windowed("TUMBLE", None, [*_ADDED, *_DISTINCT]),
        "hopping": _windowed("HOP", 20, _ADDED),
        "hopping distinct": _windowed("HOP", 20, [*_DISTINCT, *_LISTS]),
        "hopping edges": _windowed("HOP", 20, _EDGES),
        "cumulating": _windowed("CUMULATE", 20, _ADDED),
        "sessions": _windowed("SESSION", None, _ADDED),
        "inner join": _joined("INNER", _SIDE, _KEYED),
        "left join": _joined("LEFT", _KEYED, _SIDE),
        "full join": _joined("FULL", _SIDE, _SIDE),
        "semi join": _joined("SEMI", _SIDE, _SIDE),
        "anti join": _joined("ANTI", _KEYED, _KEYED),
        "top of inserts": _top(RankStrategy.APPEND, _inserts),
        "top of changes": _top(RankStrategy.RETRACT, _changes),
        "first": _first(_T, last=False),
        "last": _first(_T, last=True),
        "first by arrival": _first(None, last=False),
        "last by arrival": _first(None, last=True),
        "over range": _over(40, is_rows=False),
        "over rows": _over(2, is_rows=True),
        "over all": _over(None, is_rows=False),
        "updating over": _updating(2),
        "updating over all": _updating(None),
        "match": Case(match, [MATCHED.children[0], *measures], (_matched,), MATCHED),
        "interval join": Case(
            IntervalJoinFactory(*_TIMED, _T, _T, -15, 10), _BOTH, (_inserts, _inserts)
        ),
        "temporal join": Case(TemporalJoinFactory(*_TIMED, _T, _T), _BOTH, (_inserts, _inserts)),
        "window join": Case(
            WindowJoinFactory(*window), [*with_end, *with_end], (_ends, _ends), _WITH_END
        ),
        "window rank": Case(
            WindowRankFactory(_WITH_END, (_K,), _ORDER, 1, 2, False, _ID),
            with_end,
            (_ends,),
            _WITH_END,
        ),
        "sorted": Case(TemporalSortFactory(_ROWS, (SortColumn(_T), *_ORDER)), _TYPES),
        "normalised": Case(
            ChangelogNormalizeFactory(_ROWS, (_ID,), update_before=True),
            _TYPES,
            (_upserts,),
        ),
        "materialised": Case(SinkMaterializerFactory(_ROWS, (_N,), None), _TYPES, (_changes,)),
        "materialised by key": Case(
            SinkMaterializerFactory(_ROWS, (_N,), (_ID,)), _TYPES, (_changes,)
        ),
        "final rows": Case(FinalRowsFactory(_ROWS, _ORDER), _TYPES, (_changes,)),
    }


CASES: Final = _cases()

State = dict[bytes, bytes]


def halfway(case: Case) -> tuple[State, int]:
    """The state behind the first half, and the watermark."""
    with case.harness() as harness:
        case.run(harness, 0)
        harness.end_epoch()
        harness.end_epoch()
        entries, watermark = harness._committed[0], harness.current_watermark
        return dict(entries), watermark


def results(case: Case, state: State, watermark: int, max_parallelism: int = 128) -> Counter[Any]:
    """What the second half gives on a state."""
    with case.harness(max_parallelism) as harness:
        harness._committed = (state, 0, 0, 0, 0, watermark)
        harness.crash()
        case.run(harness, 1)
        harness.finish()
        return Counter((kind, repr(row)) for kind, row in harness.changes)


def read(path: Path) -> dict[str, tuple[State, int]]:
    """What is kept in a file, by the names of cases."""
    with gzip.open(path, "rt") as file:
        kept = json.load(file)
    decode = base64.b64decode
    return {
        name: ({decode(key): decode(value) for key, value in entries}, watermark)
        for name, (entries, watermark) in kept.items()
    }


def write(path: Path) -> None:
    """Keep the state of this release."""
    kept = {}
    for name, case in CASES.items():
        state, watermark = halfway(case)
        entries = [
            [base64.b64encode(each).decode() for each in entry] for entry in sorted(state.items())
        ]
        kept[name] = (entries, watermark)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))
