"""Print the class names that are defined more than once in src; exit code 1 if there is one.

    python tools/check_names.py

A class name means one thing in the whole project. Two names may be shared:

- by the two engines' counterparts of one idea: one class under `engines/resident`, one under `engines/spark`;
- by a client's mirror of a server's type, where they cannot be one class: one under `client`, one in MIRRORED.

A name that is shared for another reason is listed in ALLOWED, with the reason.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "rederive"
MIRRORED = ("service/", "commit/", "result.py", "delta.py")
ALLOWED: dict[str, str] = {}


def class_names(root: Path = SOURCE) -> dict[str, list[tuple[str, int]]]:
    """Return for each class name the files and lines that define it."""
    found: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append((path.relative_to(root).as_posix(), node.lineno))
    return dict(found)


def may_share(files: list[str]) -> bool:
    """Return whether the files are two counterparts: of the two engines, or of a client and its server."""
    if len(files) != 2:
        return False

    def has_pair(one: str, other: str | tuple[str, ...]) -> bool:
        return any(file.startswith(one) for file in files) and any(file.startswith(other) for file in files)

    return has_pair("engines/resident/", "engines/spark/") or has_pair("client/", MIRRORED)


def main() -> int:
    """Print every shared name, and those that may be shared."""
    names = class_names()
    shared = {name: places for name, places in names.items() if len(places) > 1}
    wrong = {
        name: places for name, places in shared.items() if name not in ALLOWED and not may_share([file for file, _ in places])
    }
    for name, places in sorted(wrong.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{name}: " + ", ".join(f"{file}:{line}" for file, line in places))
    for name in sorted(shared.keys() - wrong.keys()):
        reason = ALLOWED.get(name, "counterparts")
        print(f"  ({reason}) {name}: " + ", ".join(file for file, _ in shared[name]))
    print(f"{len(names)} class names, {len(wrong)} with several meanings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
