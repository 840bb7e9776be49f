"""Markdown of a table."""

from collections.abc import Iterator


def bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def rows(table: list[list[str]], numbers: bool = True) -> Iterator[str]:
    """Markdown; the first row is the heading, all columns but the first hold numbers."""
    for number, row in enumerate(table):
        yield f"| {' | '.join(row)} |"
        if number == 0:
            yield "|---|" + ("---:|" if numbers else "---|") * (len(row) - 1)
