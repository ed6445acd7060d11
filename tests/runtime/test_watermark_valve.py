"""The merge of watermarks: minimum over active channels, never backwards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.contracts.batch import MIN_TIMESTAMP
from millstream.runtime.exchange import WatermarkValve

A, B = (0, 0), (0, 1)


def _is_idle(valve: WatermarkValve) -> bool:
    return valve.idle


def _valve(a: int = MIN_TIMESTAMP, b: int = MIN_TIMESTAMP) -> WatermarkValve:
    return WatermarkValve(MIN_TIMESTAMP, {A: (a, False), B: (b, False)})


def test_minimum_of_two_channels() -> None:
    valve = _valve()
    assert valve.watermark(*A, 10) is None
    assert valve.watermark(*B, 7) == 7
    assert valve.watermark(*B, 20) == 10
    assert valve.watermark(*B, 30) is None


def test_idle_channel_is_left_out_and_does_not_move_time_back() -> None:
    valve = _valve(5, 5)
    valve.refresh()
    valve.watermark(*A, 50)
    assert valve.status(*B, idle=True) == 50
    assert valve.status(*B, idle=False) is None
    assert valve.current == 50
    assert valve.watermark(*B, 40) is None
    assert valve.watermark(*A, 60) is None
    assert valve.watermark(*B, 55) == 55


def test_all_idle_takes_the_highest() -> None:
    valve = _valve(5, 9)
    assert valve.refresh() == 5
    assert valve.status(*A, idle=True) == 9
    assert valve.status(*B, idle=True) is None
    assert valve.idle


def test_finished_channel_holds_nothing_back() -> None:
    valve = _valve()
    valve.watermark(*B, 100)
    assert valve.finished(*A) == 100
    assert valve.finished(*B) is None


def test_an_operator_is_idle_when_its_last_active_channel_ends() -> None:
    valve = _valve(5, 9)
    valve.refresh()
    valve.status(*B, idle=True)
    assert not _is_idle(valve)
    assert valve.finished(*A) == 9
    assert _is_idle(valve)
    valve.status(*B, idle=False)
    assert not _is_idle(valve)
    valve.status(*B, idle=True)
    valve.finished(*B)
    assert not _is_idle(valve), "as a valve that begins without channels"


@given(
    st.lists(
        st.tuples(st.sampled_from(["w", "i", "a", "f"]), st.integers(0, 3), st.integers(0, 99))
    )
)
def test_never_backwards_and_never_past_the_slowest_active(
    events: list[tuple[str, int, int]],
) -> None:
    valve = WatermarkValve(MIN_TIMESTAMP, {(0, c): (MIN_TIMESTAMP, False) for c in range(4)})
    marks = dict.fromkeys(range(4), MIN_TIMESTAMP)
    idle: set[int] = set()
    before = valve.current
    for kind, channel, mark in events:
        if channel not in marks:
            continue
        if kind == "w":
            valve.watermark(0, channel, mark)
            marks[channel] = max(marks[channel], mark)
        elif kind == "f":
            valve.finished(0, channel)
            del marks[channel]
            idle.discard(channel)
        else:
            valve.status(0, channel, idle=kind == "i")
            (idle.add if kind == "i" else idle.discard)(channel)
        assert valve.current >= before
        assert valve.idle == (bool(marks) and idle == set(marks))
        active = [marks[c] for c in marks if c not in idle]
        if valve.current > before and active:
            assert valve.current <= min(active)
        before = valve.current
