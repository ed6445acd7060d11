"""State of operators of tables that each release wrote is restored by today's operators."""

from __future__ import annotations

import pytest
from tests.runtime.table_operators.state_program import CASES, KEPT, halfway, read, results

from millstream.state.canonical.layout import SectionLayout
from millstream.state.key_codec import key_group_range
from millstream.state.reader import readable_value, scan_section
from millstream.state.registry import read_sections
from millstream.state.rescale import Rehash, copy_key_groups
from millstream.testing.memory_store import MemoryStore

_FILES = {path.name.removesuffix(".json.gz"): read(path) for path in sorted(KEPT.glob("*.json.gz"))}


def test_state_of_each_case_is_kept() -> None:
    assert "0.1.0" in _FILES
    assert {name for kept in _FILES.values() for name in kept} == set(CASES)


@pytest.mark.parametrize(
    ("release", "name"), [(release, name) for release, kept in _FILES.items() for name in kept]
)
def test_kept_state_goes_on(release: str, name: str) -> None:
    """What the rest of the input gives is what it gives on the state of today's build."""
    state, watermark = _FILES[release][name]
    case = CASES[name]
    today = results(case, *halfway(case))
    assert today
    assert results(case, state, watermark) == today
    assert results(case, {}, watermark) != today, "the state counts for nothing"


@pytest.mark.parametrize("name", CASES)
def test_agree_after_two_changes_of_max_parallelism(name: str) -> None:
    """128 key groups in one subtask, then 50 in three, then 400 in one."""
    case = CASES[name]
    state, watermark = halfway(case)
    whole, thirds = MemoryStore(state), [MemoryStore() for _ in range(3)]
    ranges = [key_group_range(subtask, 50, 3) for subtask in range(3)]
    for third, groups in zip(thirds, ranges, strict=True):
        copy_key_groups(whole, (0, 128), third, groups, Rehash(128, 50))
    hashed = MemoryStore()
    for third, groups in zip(thirds, ranges, strict=True):
        copy_key_groups(third, groups, hashed, (0, 400), Rehash(50, 400))
    assert results(case, hashed.entries, watermark, 400) == results(case, state, watermark)


@pytest.mark.parametrize("name", CASES)
def test_agree_after_a_canonical_savepoint(name: str) -> None:
    """Every entry of every operator is the same after it was a row of columns."""
    case = CASES[name]
    state, watermark = halfway(case)
    store = MemoryStore(state)
    restored = MemoryStore({key: value for key, value in state.items() if key[:1] == b"M"})
    for section in read_sections(store):
        layout = SectionLayout(section, 128)
        entries = list(scan_section(store, section))
        if entries:
            taken = layout.take_apart(*map(list, zip(*entries, strict=True)))
            layout.find_forms(taken)
            batch = layout.batch(taken, 0)
            for _, keys, values in layout.entries(iter([batch]), section.index):
                restored.write(zip(keys, values, strict=True))
    assert sorted(restored.entries) == sorted(state)
    for key, value in state.items():
        if restored.entries[key] != value:  # pickled again
            assert repr(readable_value(restored.entries[key])) == repr(readable_value(value))
    assert results(case, restored.entries, watermark) == results(case, state, watermark)
