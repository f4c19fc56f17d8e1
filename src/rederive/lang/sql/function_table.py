"""The list of functions in docs/sql.md, made of the table of functions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rederive.lang.sql.functions import ALIASES, FUNCTIONS

_BEGIN, _END = "<!-- functions -->", "<!-- /functions -->"
_SYNTAX: Final = {"trim_syntax": "trim"}


def function_table() -> str:
    """The list as Markdown, from its first to its last comment."""
    lines = ["| function | arguments and result | NULL if | can fail |", "|---|---|---|---|"]
    for name in sorted((name for name in FUNCTIONS if name not in ALIASES), key=lambda name: _SYNTAX.get(name, name)):
        found = FUNCTIONS[name]
        others = sorted(alias for alias, target in ALIASES.items() if target == name)
        names = ", ".join(f"`{one}`" for one in (_SYNTAX.get(name, name), *others))
        signature = found.signature.replace("|", "\\|")
        lines.append(f"| {names} | {signature} | {found.nulls} | {'yes' if found.fails else ''} |")
    return "\n".join((_BEGIN, *lines, _END))


def main(path: Path) -> None:
    """Write the list into a page, in the place of the one that it has."""
    text = path.read_text(encoding="utf-8")
    before, after = text[: text.index(_BEGIN)], text[text.index(_END) + len(_END) :]
    path.write_text(before + function_table() + after, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
