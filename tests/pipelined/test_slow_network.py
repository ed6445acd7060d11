"""Whole jobs over a slow network between their slots: what waits is bounded, and what is cut heals.

What it is: rows of some kilobytes through a keyed count into an exactly-once file sink; bytes
between slots wait for each other, and a connection ends in the middle of a frame.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from tests.support.in_pieces import InPieces
from tests.support.proxied_slots import ProxiedSlots

from millstream.common import Encoder, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, RuntimeContext
from millstream.datastream.connectors import FileSink
from millstream.datastream.state import ValueStateDescriptor
from millstream.engines.pipelined import run_loop
from millstream.engines.pipelined.engine import PipelinedEngine
from millstream.execution.driver import check_job, start_job
from millstream.runtime.pipelined import main_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest
    from tests.support.slot_proxy import Conditions, SlotProxy

    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]

NUMBERS: Final = 1200
KEYS: Final = 7
#: Characters of a row.
ROW: Final = 5000
#: Bytes of credit of a link; of what a task makes in one run, which it is not stopped in; and a
#: second on the wire, which is much less than what the source can make.
CREDIT: Final = 200_000
CONSTANTS: Final = {"_CREDIT": CREDIT, "_FIRST_CREDIT": CREDIT}
ONE_RUN: Final = 400_000
RATE: Final = 1_500_000
LINKS: Final = ((0, 1), (1, 0))


def blown_up(number: int) -> str:
    """A row of a number; takes a fifth of a millisecond, so that a run makes some dozens."""
    time.sleep(0.0002)
    return f"{number}:{'x' * ROW}"


class Count(KeyedProcessFunction):
    """(number, the how-manieth of its key)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        del ctx
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        number, _, rest = value.partition(":")
        yield f"{number},{count},{len(rest)}"


def run(
    make: Make, directory: Path, monkeypatch: pytest.MonkeyPatch, slow: Callable[[SlotProxy], None]
) -> ProxiedSlots:
    """Run the job to its end, and compare what it has written."""
    # Of slots that are forked from this process, too.
    for name, value in CONSTANTS.items():
        monkeypatch.setattr(main_loop, name, value)
    settings = {
        "execution.checkpointing.interval": "50",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    env = make(2, settings)
    source = InPieces(0, NUMBERS - 1, splits=2, constants=CONSTANTS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    rows = numbers.map(blown_up, Types.STRING()).uid("rows")
    keyed = rows.key_by(lambda row: int(row.partition(":")[0]) % KEYS, Types.LONG())
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder())
    keyed.process(Count(), Types.STRING()).uid("count").sink_to(sink.build()).uid("files")
    graph = env.get_job_graph("slow")
    check_job(graph)
    host = ProxiedSlots(slow, seed=7)
    monkeypatch.setattr(run_loop, "Begin", host.begin)
    start_job(graph, PipelinedEngine(2, host)).get_job_execution_result()
    files = [each for each in (directory / "out").iterdir() if not each.name.startswith(".")]
    lines = [line for each in files for line in each.read_text().splitlines()]
    seen = [tuple(map(int, line.split(","))) for line in lines]
    assert sorted(number for number, _, _ in seen) == list(range(NUMBERS))
    assert {length for _, _, length in seen} == {ROW}
    for key in range(KEYS):
        counts = sorted(count for number, count, _ in seen if number % KEYS == key)
        assert counts == list(range(1, len(counts) + 1))
    assert len(files) > 4, "there were several checkpoints"
    return host


def test_what_waits_for_a_slow_link_is_bounded(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[Conditions] = []

    def slow(proxy: SlotProxy) -> None:
        for ends in LINKS:
            how = proxy.conditions(*ends)
            how.least_delay, how.most_delay, how.bytes_per_second = 0.001, 0.02, RATE
            links.append(how)
            threading.Thread(target=fill, args=(how,), daemon=True).start()

    def fill(how: Conditions) -> None:
        """Stall the link until it is full: a busy machine may make rows no faster than it takes."""
        while how.passed < ROW:  # the handshake is over
            time.sleep(0.002)
        how.stalled = True
        while how.most_waiting <= CREDIT / 2:
            time.sleep(0.002)
        how.stalled = False

    host = run(make, tmp_path, monkeypatch, slow)
    assert host.runs == 1
    for how in links:
        assert how.most_waiting > CREDIT / 2, "the link held its producer back"
        assert how.most_waiting < CREDIT + ONE_RUN < how.passed


def test_a_link_that_is_cut_in_the_middle_of_a_frame(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links: list[Conditions] = []

    def cut_once(proxy: SlotProxy) -> None:
        how = proxy.conditions(0, 1)
        how.cut_at = None if links else 500_001
        links.append(how)

    host = run(make, tmp_path, monkeypatch, cut_once)
    assert host.runs == 2
    assert links[0].passed == 500_001
