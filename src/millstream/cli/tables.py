"""Tables of text, as the commands print them."""

from __future__ import annotations


class Table:
    """Columns as wide as their longest cell, whatever the width of the terminal: nothing is cut."""

    def __init__(self, *columns: tuple[str, bool]) -> None:
        """Each column is (heading, right-aligned)."""
        self._right = [right for _, right in columns]
        self._rows = [tuple(heading for heading, _ in columns)]

    def add(self, *cells: str) -> None:
        """Add a row."""
        self._rows.append(cells)

    def print(self) -> None:
        """Print heading, rule and rows."""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, self._right, strict=True)
            ).rstrip()
            for row in self._rows
        ]
        print("", lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:], "", sep="\n")
