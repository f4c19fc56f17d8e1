"""Report the shape of the source: a report to read, not a gate.

    python tools/check_shape.py

Public functions, methods and classes without a docstring; functions above a cyclomatic complexity of 15 (ruff checks it, too);
files above 300 lines and functions above 60; comments for 100 lines in each folder; the public names of `Database`; and the
words that STYLE.md replaces, in src and docs.
"""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "rederive"
COMPLEXITY = 15
LONG_FILE = 300
LONG_FUNCTION = 60
MOST_PUBLIC_NAMES = 25
WORDS = ("wish", "wishes", "told", "anew", "stands", "is no", "are no", "beside")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def python_files() -> list[Path]:
    """Return the files of the source in order."""
    return sorted(SOURCE.rglob("*.py"))


def public_definitions(tree: ast.Module) -> Iterator[tuple[str, Definition]]:
    """Yield what a module defines without a leading underscore, and the same of its public classes."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Definition]]:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                yield prefix + node.name, node
                if isinstance(node, ast.ClassDef):
                    yield from walk(node.body, f"{prefix}{node.name}.")

    yield from walk(tree.body, "")


def is_overload(node: Definition) -> bool:
    """Return whether a definition only adds a type to another one."""
    return any("overload" in ast.unparse(decorator) or "setter" in ast.unparse(decorator) for decorator in node.decorator_list)


def report_docstrings(trees: dict[Path, ast.Module]) -> None:
    """Print what has no docstring."""
    missing: list[str] = []
    total = 0
    for path, tree in trees.items():
        for name, node in public_definitions(tree):
            if is_overload(node):
                continue
            total += 1
            if ast.get_docstring(node) is None:
                missing.append(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
    print(f"## Public functions, methods and classes without a docstring: {len(missing)} of {total}\n")
    print("\n".join(missing) + "\n")


def report_complexity() -> None:
    """Print the functions above the limit, by ruff."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff"
    command = [ruff, "check", "--select", "C901", "--config", f"lint.mccabe.max-complexity={COMPLEXITY}"]
    ran = subprocess.run([*command, "--output-format", "concise", "src"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line for line in ran.stdout.splitlines() if "C901" in line]
    print(f"## Functions above a cyclomatic complexity of {COMPLEXITY}: {len(found)}\n")
    print("\n".join(found) + "\n")


def report_sizes(trees: dict[Path, ast.Module]) -> None:
    """Print long files and long functions."""
    long_files = [(len(path.read_text(encoding="utf-8").splitlines()), path) for path in trees]
    long_files = [(lines, path) for lines, path in sorted(long_files, reverse=True) if lines > LONG_FILE]
    print(f"## Files above {LONG_FILE} lines: {len(long_files)}\n")
    print("\n".join(f"{lines:5} {path.relative_to(ROOT)}" for lines, path in long_files) + "\n")
    functions = [
        ((node.end_lineno or 0) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    functions = [(lines, place) for lines, place in sorted(functions, reverse=True) if lines > LONG_FUNCTION]
    print(f"## Functions above {LONG_FUNCTION} lines: {len(functions)}\n")
    print("\n".join(f"{lines:5} {place}" for lines, place in functions) + "\n")


def report_comments() -> None:
    """Print comments for 100 lines of each folder."""
    lines: Counter[str] = Counter()
    comments: Counter[str] = Counter()
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        count = sum(token.type == tokenize.COMMENT and not re.match(r"#\s*(type:|noqa|fmt:)", token.string) for token in tokens)
        folder = path.relative_to(SOURCE).parent.as_posix()
        for key in (folder, "all"):
            lines[key] += len(text.splitlines())
            comments[key] += count
    print("## Comments for 100 lines\n")
    for folder in sorted(lines):
        print(f"{100 * comments[folder] / max(lines[folder], 1):6.1f}  {lines[folder]:6} lines  {folder}")
    print()


def public_names(thing: object) -> list[str]:
    """Return the names of a class or an object that do not begin with an underscore.

    >>> public_names(range)
    ['count', 'index', 'start', 'step', 'stop']
    """
    return [name for name in dir(thing) if not name.startswith("_")]


def report_public_names() -> None:
    """Print the public names of `Database`."""
    sys.path.insert(0, str(SOURCE.parent))
    from rederive import Database

    names = public_names(Database)
    print(f"## Public names of Database: {len(names)} (at most {MOST_PUBLIC_NAMES})\n")
    print(" ".join(names) + "\n")


def report_words() -> None:
    """Print how often each replaced word occurs, and where most."""
    print("## Words to replace\n")
    files = [*python_files(), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    files = [path for path in files if path.name != "glossary.md"]
    for word in WORDS:
        # An underscore ends a word, too: `_told` and `told_rows` count.
        pattern = re.compile(rf"(?<![a-z]){word}(?![a-z])", re.IGNORECASE)
        counts: defaultdict[str, int] = defaultdict(int)
        for path in files:
            if found := len(pattern.findall(path.read_text(encoding="utf-8"))):
                counts[str(path.relative_to(ROOT))] = found
        most = sorted(counts.items(), key=lambda item: -item[1])[:8]
        print(f"{sum(counts.values()):5}  {word!r}: " + ", ".join(f"{file} {count}" for file, count in most))


def main() -> None:
    """Print the whole report."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in python_files()}
    report_docstrings(trees)
    report_complexity()
    report_sizes(trees)
    report_comments()
    report_public_names()
    report_words()


if __name__ == "__main__":
    main()
