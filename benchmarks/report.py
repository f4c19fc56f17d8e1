"""What a benchmark yields, and its three forms: tables on the terminal, Markdown, JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any, assert_never

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

PACKAGES = ("rederive", "pyroaring", "duckdb")


class Unit(Enum):
    SECONDS = "seconds"
    BYTES = "bytes"
    RATIO = "ratio"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class Goal:
    """What the project set out to reach, and whether this run did."""

    text: str
    met: bool

    def __str__(self) -> str:
        return f"{self.text}: {'met' if self.met else 'missed'}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, beside the peer's from the same run where it has one. Less is better in every unit."""

    name: str
    ours: float
    peer: float | None = None
    goal: Goal | None = None
    unit: Unit = Unit.SECONDS


@dataclass(frozen=True, slots=True)
class Check:
    """An answer that was compared with an independent one. A check that fails fails the run; a missed goal does not."""

    text: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that belong together. `notes` say what was measured, and what not."""

    title: str
    figures: tuple[Figure, ...]
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    peer: str = "DuckDB"


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and when the figures were measured, and with what."""

    date: str
    processor: str
    cores: int
    memory: float
    system: str
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def this(cls) -> Machine:
        return cls(
            datetime.now().astimezone().isoformat(timespec="minutes"),
            _processor(),
            os.cpu_count() or 1,
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            platform.platform(terse=True),
            (("python", platform.python_version()), *((name, version(name)) for name in PACKAGES)),
        )

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions)
        return f"{self.date}; {self.processor}, {self.cores} cores, {self.memory / 1e9:.0f} GB, {self.system}; {versions}"


def _processor() -> str:
    """The processor's name as Linux tells it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


# Numbers in words


def shown(value: float, unit: Unit) -> str:
    """A number with three digits and its unit.

    >>> shown(1.8709, Unit.SECONDS), shown(0.0000353, Unit.SECONDS), shown(183_400_000, Unit.BYTES), shown(1.333, Unit.RATIO)
    ('1.87 s', '35.3 µs', '183 MB', '1.33x')
    >>> shown(3453579, Unit.COUNT)
    '3,453,579'
    """
    match unit:
        case Unit.SECONDS:
            scale, name = next((pair for pair in ((1.0, "s"), (1e-3, "ms")) if value >= pair[0]), (1e-6, "µs"))
            return f"{_digits(value / scale)} {name}"
        case Unit.BYTES:
            return f"{_digits(value / 1e6)} MB"
        case Unit.RATIO:
            return f"{_digits(value)}x"
        case Unit.COUNT:
            return f"{value:,.0f}"
        case _:
            assert_never(unit)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def compared(figure: Figure) -> str:
    """How ours stands to the peer's.

    >>> compared(Figure("closure", 0.5, 2.0)), compared(Figure("base and view", 3e8, 1e8, unit=Unit.BYTES))
    ('4x faster', '3x larger')
    """
    if figure.peer is None:
        return ""
    better, worse = ("faster", "slower") if figure.unit is Unit.SECONDS else ("smaller", "larger")
    if figure.ours <= figure.peer:
        return f"{_digits(figure.peer / figure.ours)}x {better}"
    return f"{_digits(figure.ours / figure.peer)}x {worse}"


def _cells(figure: Figure) -> tuple[str, str, str, str, str]:
    peer = "" if figure.peer is None else shown(figure.peer, figure.unit)
    goal = "" if figure.goal is None else str(figure.goal)
    return figure.name, shown(figure.ours, figure.unit), peer, compared(figure), goal


# Forms


def tables(section: Section) -> RenderableType:
    """The section for a terminal."""
    table = Table(
        title=section.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for name in ("", "rederive", section.peer, "rederive is"):
        table.add_column(name, justify="right" if name else "left", no_wrap=bool(name))
    table.add_column("goal")
    for figure in section.figures:
        *cells, goal = _cells(figure)
        style = "" if figure.goal is None else "green" if figure.goal.met else "red"
        table.add_row(*cells, Text(goal, style))
    checks = (Text(f"{check.text}: {_verdict(check)}", "" if check.ok else "bold red") for check in section.checks)
    return Group(table, *checks, *(Text(note, "dim") for note in section.notes), "")


def _verdict(check: Check) -> str:
    return "yes" if check.ok else "NO"


def markdown(name: str, machine: Machine, sections: Iterable[Section]) -> str:
    """The report of one benchmark as a page of documentation."""
    lines = [
        f"# Benchmark {name}",
        "",
        f"Written by `.venv/bin/python benchmarks/run.py {name} --write`; the peer's figures are from the same run.",
        "",
        f"{machine}",
        "",
    ]
    for section in sections:
        lines += _markdown_section(section)
    return "\n".join(lines)


def _markdown_section(section: Section) -> Iterator[str]:
    yield from (f"## {section.title}", "", f"| | rederive | {section.peer} | rederive is | goal |", "|---|--:|--:|--:|---|")
    for figure in section.figures:
        yield f"| {' | '.join(_cells(figure))} |"
    yield ""
    for line in (*(f"{check.text}: {_verdict(check)}" for check in section.checks), *section.notes):
        yield f"- {line}"
    yield ""


def data(machine: Machine, sections: Iterable[Section]) -> dict[str, Any]:
    """The whole report as plain data, for JSON."""
    return {
        "machine": {
            "date": machine.date,
            "processor": machine.processor,
            "cores": machine.cores,
            "memory_bytes": machine.memory,
            "system": machine.system,
            "versions": dict(machine.versions),
        },
        "sections": [_section_data(section) for section in sections],
    }


def _section_data(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "peer": section.peer,
        "figures": [_figure_data(figure) for figure in section.figures],
        "checks": [{"text": check.text, "ok": check.ok} for check in section.checks],
        "notes": list(section.notes),
    }


def _figure_data(figure: Figure) -> dict[str, Any]:
    goal = figure.goal and {"text": figure.goal.text, "met": figure.goal.met}
    return {"name": figure.name, "rederive": figure.ours, "peer": figure.peer, "unit": figure.unit.value, "goal": goal}
