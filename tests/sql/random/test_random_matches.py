"""MATCH_RECOGNIZE at random, against an interpreter that goes through all ways.

``MILLSTREAM_MATCH_SEEDS=7,8 pytest tests/sql/random/test_random_matches.py`` replays some;
``make soak`` goes on with others.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

import pytest
from tests.sql.random.random_matches import RandomMatch
from tests.support.query_running import changelog, environment, materialised
from tests.support.tiers import sampled

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from pathlib import Path

SEEDS: Final = [
    int(seed) for seed in os.environ.get("MILLSTREAM_MATCH_SEEDS", "1,2,3,8").split(",")
]


def compare(seed: int, directory: Path) -> int:
    """Run the query of a seed; how many matches it has."""
    drawn = RandomMatch.of(seed)
    print(f"replay with MILLSTREAM_MATCH_SEEDS={seed}\n{drawn.query}\n{drawn.rows}")
    env = environment((1, 3)[seed % 2])
    lines = [
        json.dumps({"k": k, "v": v, "ts": f"2024-01-01 00:{time // 60:02}:{time % 60:02}"}) + "\n"
        for k, v, time in drawn.rows
    ]
    (directory / "e").mkdir()
    (directory / "e" / "rows.json").write_text("".join(lines))
    env.execute_sql(
        "CREATE TABLE e (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '3' "
        f"SECOND) WITH ('connector' = 'filesystem', 'path' = '{directory / 'e'}', "
        "'format' = 'json')"
    )
    wanted = drawn.answer()
    if isinstance(wanted, str):
        with pytest.raises(MillstreamError, match=wanted):
            changelog(env, drawn.query, directory, seed)
        return 0
    assert materialised(changelog(env, drawn.query, directory, seed)) == wanted
    return wanted.total()


@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("seed", sampled(SEEDS, 1))
def test_oracle_random_match(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 400))
def test_oracle_random_matches_for_long(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path)
