"""`make bench`: every figure beside the peer's, measured in the same run, and the goal it was meant to reach.

A missed goal is reported and does not fail the run; an answer that differs from the peer's does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that it runs as a script, from any folder

from benchmarks import closure, growth, memory, modules, on_demand, rules, selfmaint, service, spark, tradeoff
from benchmarks.peers.rust import PEERS
from benchmarks.report import Machine, Section, data, markdown, tables

DOCS = Path(__file__).resolve().parent.parent / "docs"


@dataclass(frozen=True, slots=True)
class Options:
    edges: int
    growth_edges: int
    sizes: tuple[int, ...]
    stored: tuple[int, ...]
    facts: tuple[int, ...]
    repeats: int
    changes: int
    seed: int
    rust: tuple[str, ...]
    docs: Path | None


# Name, and how its `run` is called. A new benchmark is a file and a line here.
BENCHMARKS: dict[str, Callable[[Options], Iterator[Section]]] = {
    "closure": lambda o: closure.run(o.edges, o.repeats, o.seed, o.rust),
    "memory": lambda o: memory.run(),
    "growth": lambda o: growth.run(o.sizes, o.growth_edges, o.repeats, o.seed),
    "on_demand": lambda o: on_demand.run(o.changes, o.repeats, o.seed),
    "modules": lambda o: modules.run(o.changes, o.seed),
    "selfmaint": lambda o: selfmaint.run(o.stored, o.changes, o.repeats),
    "rules": lambda o: rules.run((1_000, 1_000_000), 100, o.changes, o.seed),
    "spark": lambda o: spark.run(o.facts),
    "service": lambda o: service.run(100, 10.0, 5_000),
    "tradeoff": lambda o: tradeoff.run(o.changes // 2, o.seed, o.docs),
}


def _sizes(text: str, least: int) -> tuple[int, ...]:
    sizes = _numbers("--sizes", text)
    if min(sizes) < least:
        raise typer.BadParameter(f"a graph of {min(sizes)} edges has no {least} of them to change: lower --growth-edges")
    return sizes


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{option} takes numbers with commas between them, not '{text}'") from None


def _peers(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    if unknown := [name for name in names if name not in PEERS]:
        raise typer.BadParameter(f"unknown engine '{unknown[0]}'; known: {', '.join(PEERS)}")
    return names


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"Which: {', '.join(BENCHMARKS)}. All, if none is named.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every figure as JSON.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write a page of docs/benchmarks for each, and docs/tradeoff.md with its picture.")
    ] = False,
    edges: Annotated[int, typer.Option(min=2, help="Random edges of the Debian graph to change.")] = 500,
    growth_edges: Annotated[int, typer.Option(min=2, help="Random edges of each growth graph to change.")] = 300,
    sizes: Annotated[str, typer.Option(help="Edges of the growth graphs.")] = "10000,100000,1000000",
    stored: Annotated[str, typer.Option(help="Rows of the stored view for selfmaint.")] = "1000,10000,100000,1000000",
    facts: Annotated[str, typer.Option(help="Facts of the star join on Spark.")] = "1000000,10000000,30000000",
    repeats: Annotated[int, typer.Option(min=1, help="How often to evaluate from scratch.")] = 3,
    changes: Annotated[int, typer.Option(min=4, help="Random changes where no view is stored; half of them for tradeoff.")] = 200,
    seed: Annotated[int, typer.Option(help="What the random choices follow from.")] = 1,
    rust: Annotated[str, typer.Option(help="Engines in Rust to compare with; built where cargo is there.")] = ",".join(PEERS),
) -> None:
    """Measure rederive beside DuckDB, in one run."""
    chosen = names or list(BENCHMARKS)
    if unknown := [name for name in chosen if name not in BENCHMARKS]:
        raise typer.BadParameter(f"unknown benchmark '{unknown[0]}'; known: {', '.join(BENCHMARKS)}")
    options = Options(
        edges,
        growth_edges,
        _sizes(sizes, growth_edges),
        _numbers("--stored", stored),
        _numbers("--facts", facts),
        repeats,
        changes,
        seed,
        _peers(rust),
        DOCS if write else None,
    )
    console, machine = Console(), Machine.this()
    console.print(f"{machine}\n", highlight=False, soft_wrap=True)
    found = {name: list(measured(name, options, console)) for name in chosen}
    sections = [section for one in found.values() for section in one]
    if json_file is not None:
        json_file.write_text(json.dumps(data(machine, sections), indent=2) + "\n", encoding="utf-8")
    for name, one in found.items() if write else ():
        (DOCS / "benchmarks").mkdir(parents=True, exist_ok=True)
        (DOCS / "benchmarks" / f"{name}.md").write_text(markdown(name, machine, one), encoding="utf-8")
    finish(sections, console)


def measured(name: str, options: Options, console: Console) -> Iterator[Section]:
    """The sections of one benchmark, each printed as soon as it is there."""
    with console.status(f"measuring {name}"):
        for section in BENCHMARKS[name](options):
            console.print(tables(section))
            yield section


def finish(sections: list[Section], console: Console) -> None:
    """The last line, and the exit code."""
    goals = [figure.goal for section in sections for figure in section.figures if figure.goal]
    checks = [check for section in sections for check in section.checks]
    right, met = sum(check.ok for check in checks), sum(goal.met for goal in goals)
    console.print(f"{right} of {len(checks)} checks passed; {met} of {len(goals)} goals met", style="bold", highlight=False)
    raise typer.Exit(right < len(checks))


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app()
