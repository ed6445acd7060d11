"""What an operator emits against its declared type: found where, named how, at which cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Row, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.connectors.formats.parquet_format import ParquetWriterFactory
from millstream.contracts.batch import Batch
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink
from millstream.errors import TypeMismatchError
from millstream.runtime import user_code
from millstream.runtime.operators import MapFactory
from millstream.runtime.user_code import OutputCheck
from millstream.testing.harness import OperatorHarness
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.value_check import compile_check, is_quick

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.common.typeinfo import TypeInformation

PAIR = Types.TUPLE([Types.LONG(), Types.STRING()])
COUNT = 40_000


def run(directory: Path, function: Any, end: str, kind: TypeInformation = PAIR) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = NumberSequenceSource(0, COUNT - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    mapped = numbers.map(function, output_type=kind).name("pairs")
    kept = mapped.filter(lambda pair: pair is None or pair[0] >= 0)
    if end == "exchange":
        kept = kept.key_by(lambda pair: pair[0] % 7).map(lambda pair: pair)
    if end == "parquet":
        writer = ParquetWriterFactory()
        kept.sink_to(FileSink.for_bulk_format(str(directory / "out"), writer).build())
    else:
        kept.sink_to(BlackholeSink())
    MiniCluster(env.get_job_graph("check"), directory / "checkpoint", limits=[COUNT] * 9).run()


@pytest.mark.both_engines
@pytest.mark.parametrize("end", ["exchange", "parquet"])
def test_one_record_is_found_where_records_become_columns(tmp_path: Path, end: str) -> None:
    """The operator that made it is named, not the filter or sink behind it."""
    wrong = 38_765
    with pytest.raises(TypeMismatchError) as caught:
        run(tmp_path, lambda n: (n, str(n) if n != wrong else n), end)
    message = str(caught.value)
    assert message.startswith("operator 'pairs' (test_output_check.py:")
    assert "field 'f1': 38765 is an int and does not fit String" in message
    assert message.count("operator") == 1
    assert "sink" not in message


@pytest.mark.both_engines
@pytest.mark.parametrize("last_good", [4_000, 30_000])
def test_what_goes_wrong_is_found_where_nobody_reads_columns(
    tmp_path: Path, last_good: int
) -> None:
    with pytest.raises(TypeMismatchError, match=r"operator 'pairs' \(test_output_check\.py:"):
        run(tmp_path, lambda n: (n, str(n) if n <= last_good else n), "nothing")


@pytest.mark.epochs_only("batches are as long as 5 ms of work")
@pytest.mark.both_engines
def test_the_first_records_are_checked_one_and_all(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match=r"value 4001, field 'f1': 4001 is an int"):
        run(tmp_path, lambda n: (n, str(n) if n != 4_001 else n), "nothing")


@pytest.mark.both_engines
def test_rows_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match=r"operator 'pairs' .*None"):
        run(tmp_path, lambda n: (n, "x") if n < 30_000 else None, "nothing")


@pytest.mark.epochs_only("batches are as long as 5 ms of work")
@pytest.mark.both_engines
def test_few_records_are_looked_at_where_nobody_reads_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: columns only for the first, predicates for few of the others."""
    looked_at = converted = 0
    to_arrow = type(PAIR).to_arrow

    def counting_to_arrow(kind: Any, values: Any) -> Any:
        nonlocal converted
        converted += len(values)
        return to_arrow(kind, values)

    def counting_check(kind: Any) -> Any:
        fits = compile_check(kind)
        assert fits is not None

        def check(value: object) -> bool:
            nonlocal looked_at
            looked_at += 1
            return fits(value)

        return check

    monkeypatch.setattr(type(PAIR), "to_arrow", counting_to_arrow)
    monkeypatch.setattr(user_code, "compile_check", counting_check)
    run(tmp_path, lambda n: (n, str(n)), "nothing")
    assert converted == 4_096
    assert 0 < looked_at < COUNT // 100


KINDS: dict[str, tuple[TypeInformation, Callable[[int], Any], Any]] = {
    "quick": (PAIR, lambda n: (n, "x"), (1, 2)),
    "rows": (
        Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()]),
        lambda n: Row(a=n, b="x"),
        Row(a="x", b="x"),
    ),
    "rows in another order": (
        Types.ROW_NAMED(["b", "a"], [Types.STRING(), Types.LONG()]),
        lambda n: Row(b="x", a=n),
        Row(a="x", b="x"),
    ),
    "lists": (Types.LIST(Types.LONG()), lambda n: [n], ["x"]),
    "numbers": (Types.LONG(), lambda n: n, 2**70),
}


@pytest.mark.parametrize("form", KINDS)
def test_samples_of_every_kind_of_type(form: str) -> None:
    """Every position has its turn."""
    kind, make, wrong = KINDS[form]
    assert is_quick(kind) == (form != "lists")
    context = OperatorHarness(MapFactory(str), output_type=kind).context
    check = OutputCheck(context)
    check(Batch(kind, values=[make(n) for n in range(5_000)]))
    values = [make(n) for n in range(100)]
    values[37] = wrong
    seen = 0
    for _ in range(8):
        try:
            check(Batch(kind, values=list(values)))
        except TypeMismatchError as error:
            assert "value 37" in str(error)  # noqa: PT017 - counted, too
            seen += 1
    assert seen == 1


def test_the_quick_check_takes_rows_by_name() -> None:
    fits = compile_check(Types.ROW_NAMED(["b", "a"], [Types.STRING(), Types.LONG()]))
    assert fits is not None
    assert fits(Row(b="x", a=1))
    assert fits(Row("x", 1))
    assert not fits(Row(b=1, a="x"))
    assert not fits(Row(1, "x"))
    assert not fits(Row(a=1, c="x"))
