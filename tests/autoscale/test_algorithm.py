"""The parallelism that is computed of figures of vertices."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.autoscale.algorithm import (
    Decision,
    PastScaling,
    ScalingSettings,
    VertexFigures,
    divisor_above,
    evaluate,
    grouped,
    required_capacity,
    target_rates,
)

#: No backlog and no restart counts, where a test does not say so.
PLAIN = ScalingSettings(catch_up=0)


def vertex(
    records_in: float, busy: float, parallelism: int = 1, *inputs: str, **more: float
) -> VertexFigures:
    figures = VertexFigures(parallelism, 128, records_in, records_in, busy, inputs=inputs)
    return replace(figures, **more)  # type: ignore[arg-type]


def changes(settings: ScalingSettings = PLAIN, **vertices: VertexFigures) -> dict[str, int]:
    return Decision(evaluate(vertices, settings)).changes


def test_a_vertex_is_as_busy_as_the_target_after_it() -> None:
    # It can do 100 records per second in each of 2 subtasks, and 300 come: 3 / 0.7 subtasks, and
    # 5 do not divide 128 key groups.
    assert changes(source=vertex(200, 1000, 2, lag_growth=100)) == {"source": 8}
    assert vertex(100, 500).true_rate == 200


def test_within_its_bounds_nothing_changes() -> None:
    assert changes(source=vertex(100, 700)) == {}
    assert changes(source=vertex(100, 950, 4)) == {}
    assert changes(source=vertex(100, 100, 4)) == {"source": 2}


def test_what_falls_behind_is_seen_by_its_lag() -> None:
    """A source that is held up by its reader is not busy itself."""
    source = vertex(100, 50, 1, lag_growth=100)
    slow = vertex(100, 1000, 1, "source")
    assert changes(source=source, slow=slow) == {"slow": 4}


def test_rates_follow_what_operators_emit() -> None:
    vertices = {
        "source": vertex(10, 500, 1, lag_growth=10),
        "doubles": replace(vertex(10, 500, 1, "source"), records_out=20),
        "reads": vertex(20, 500, 1, "doubles"),
    }
    assert [rate for rate, _ in target_rates(vertices).values()] == [20, 20, 40]
    # One that falls behind has got less, unless it only gets a part.
    vertices["reads"] = vertex(5, 1000, 1, "doubles")
    assert target_rates(vertices)["reads"][0] == 40
    vertices["reads"] = replace(vertices["reads"], reads_all=False)
    assert target_rates(vertices)["reads"][0] == 10


def test_a_backlog_is_processed_within_the_catch_up_duration() -> None:
    settings = ScalingSettings(catch_up=100, restart=0)
    assert required_capacity(70, 1000, 0.7, settings, 0) == pytest.approx(110)
    assert required_capacity(70, 1000, 0.7, settings, 10) == pytest.approx(117)


def test_changes_are_limited() -> None:
    source = vertex(100, 1000, 4, lag_growth=10_000)
    assert changes(replace(PLAIN, up_factor=1.0), source=source) == {"source": 8}
    assert changes(replace(PLAIN, most_parallelism=6), source=source) == {"source": 6}
    idle = vertex(1, 10, 16)
    assert changes(replace(PLAIN, down_factor=0.5), source=idle) == {"source": 8}
    assert changes(replace(PLAIN, least_parallelism=4), source=idle) == {"source": 8}
    assert changes(replace(PLAIN, excluded=frozenset({"source"})), source=idle) == {}


def test_a_scaling_that_has_not_helped_is_not_repeated() -> None:
    source = vertex(105, 1000, 2, lag_growth=1000)
    past = {"source": PastScaling(before=1, after=2, rate=100, expected=200)}
    settings = replace(PLAIN, detects_ineffective=True)
    found = evaluate({"source": source}, settings, past)["source"]
    assert (found.recommended, found.reason) == (2, "scaling up before has not helped")
    assert evaluate({"source": source}, PLAIN, past)["source"].recommended > 2


def test_vertices_of_a_group_get_the_highest() -> None:
    vertices = {"a": vertex(100, 1000, 1, lag_growth=100), "b": vertex(100, 50, 1, "a")}
    decision = Decision(evaluate(vertices, PLAIN))
    assert decision.changes == {"a": 4}
    assert grouped(decision, [["a", "b"]]) == {"a": 4, "b": 4}


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 512))
def test_key_groups_are_shared_out_evenly_where_that_is_possible(
    wanted: int, highest: int, groups: int
) -> None:
    found = divisor_above(wanted, highest, groups)
    assert found >= wanted
    if found != wanted:
        assert groups % found == 0
        assert found <= highest
    elif groups % wanted:
        assert not [n for n in range(wanted, min(groups // 2, highest) + 1) if groups % n == 0]


figures = st.builds(
    VertexFigures,
    parallelism=st.integers(1, 100),
    max_parallelism=st.sampled_from([100, 128, 256, 720]),
    records_in=st.floats(0, 1e6),
    records_out=st.floats(0, 1e6),
    busy=st.floats(0, 1000),
    lag=st.floats(0, 1e9),
    lag_growth=st.floats(-1e6, 1e6),
)
all_settings = st.builds(
    ScalingSettings,
    up_factor=st.floats(0, 10),
    down_factor=st.floats(0, 1),
    least_parallelism=st.integers(1, 8),
    most_parallelism=st.integers(8, 300),
    catch_up=st.floats(0, 1e4),
    restart=st.floats(0, 1e3),
)


@given(figures, all_settings)
def test_limits_hold_whatever_the_figures_are(
    source: VertexFigures, settings: ScalingSettings
) -> None:
    found = evaluate({"source": source}, settings)["source"].recommended
    highest = min(source.max_parallelism, settings.most_parallelism)
    assert min(settings.least_parallelism, highest) <= found <= highest


@given(figures, st.floats(1, 100))
def test_more_input_never_means_less_parallelism(source: VertexFigures, factor: float) -> None:
    rate = max(1.0, source.records_in)
    before, after = (
        replace(source, records_in=rate, busy=500.0, lag_growth=growth)
        for growth in (0.0, rate * (factor - 1))
    )
    settings = ScalingSettings()
    found = [evaluate({"s": each}, settings)["s"] for each in (before, after)]
    assert found[0].capacity <= found[1].capacity * (1 + 1e-9)
    assert found[0].recommended <= found[1].recommended


@given(figures)
def test_after_its_scaling_a_vertex_is_within_its_bounds(source: VertexFigures) -> None:
    """Unless a limit has kept it from what it needs; what is scaled once is not scaled again."""
    source = replace(source, records_in=max(1.0, source.records_in), busy=max(10.0, source.busy))
    source = replace(source, lag=0.0, lag_growth=0.0, max_parallelism=100_000)
    settings = ScalingSettings(catch_up=0, down_factor=1.0, most_parallelism=100_000)
    found = evaluate({"source": source}, settings)["source"]
    per_subtask = source.true_rate / source.parallelism
    after = replace(source, parallelism=found.recommended)
    after = replace(after, busy=1000 * source.records_in / (per_subtask * found.recommended))
    again = evaluate({"source": after}, settings)["source"]
    assert again.recommended == found.recommended
    assert not again.is_out_of_bounds or found.recommended <= math.ceil(1 / 0.4)
