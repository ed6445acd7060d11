"""Draw the demo's results: one PNG.

What it is: the year's mean delay by hour of the day and airport, and the flights that aircraft
missed by destination of the flight they were still out on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from demo.job import committed_files

if TYPE_CHECKING:
    from pathlib import Path

    from demo.job import OutputDirectories

__all__ = ["draw"]

_COLORS: Final = {"EWR": "#3a6fc4", "JFK": "#c27a17", "LGA": "#2f8f5b"}
_AIRPORTS: Final = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "La Guardia"}


def draw(outputs: OutputDirectories, path: Path) -> None:
    """Draw the results of a finished run.

    Args:
        outputs: where the job wrote.
        path: the PNG to make.
    """
    import duckdb
    from matplotlib.figure import Figure

    with duckdb.connect() as connection:
        by_hour = connection.execute(
            f"""
            SELECT origin, extract(hour FROM timezone('America/New_York',
                timezone('UTC', make_timestamp(hour_start * 1000)))) AS hour,
                sum(mean_delay * (flights - cancelled)) / sum(flights - cancelled) AS delay
            FROM read_parquet({_files(outputs.hourly)})
            WHERE flights > cancelled GROUP BY ALL HAVING sum(flights) > 100 ORDER BY ALL
            """
        ).fetchall()
        missed = connection.execute(
            f"""
            SELECT flown_to, count(*) AS flights, avg(short_by_minutes) / 60 AS hours
            FROM read_parquet({_files(outputs.missed)})
            GROUP BY ALL ORDER BY flights DESC, flown_to LIMIT 15
            """
        ).fetchall()
    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_delays(left, by_hour)
    _draw_missed(right, missed)
    figure.savefig(path, dpi=110)


def _draw_delays(axes: Any, rows: list[tuple[str, int, float]]) -> None:
    for origin, color in _COLORS.items():
        points = [(hour, delay) for airport, hour, delay in rows if airport == origin]
        axes.plot(
            [hour for hour, _ in points],
            [delay for _, delay in points],
            color=color,
            marker="o",
            label=f"{_AIRPORTS[origin]} ({origin})",
        )
    axes.set_title("Departure delay by hour of the schedule, 2013")
    axes.set_xlabel("hour of the day in New York")
    axes.set_ylabel("mean delay (minutes)")
    axes.set_xticks(range(5, 24, 3))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def _draw_missed(axes: Any, rows: list[tuple[str, int, float]]) -> None:
    axes.invert_yaxis()
    axes.barh([row[0] for row in rows], [row[1] for row in rows], color="#7b8794")
    for position, (_, flights, hours) in enumerate(rows):
        axes.text(flights, position, f" {hours:.1f} h short", va="center", fontsize=8)
    axes.set_title("Next flights missed, by where the aircraft still was")
    axes.set_xlabel("flights missed")
    axes.margins(x=0.15)
    axes.grid(alpha=0.3, axis="x")


def _files(directory: Path) -> list[str]:
    return [str(path) for path in committed_files(directory)]
