"""SJ96's table (section 5): views over a database of software modules, and a new import link from a module to a procedure.

The paper's database held 283 modules and 1,630 procedures; this one is as large, and generated. Modules lie in layers. A module
uses one to three others, most of them one or two layers below, and imports one to three procedures of each; one use in a hundred
goes anywhere, so there are cycles, but few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

import rederive
from benchmarks.report import Check, Figure, Goal, Section
from benchmarks.rounds import delete, insert, timed
from rederive.engines.resident.engine import ResidentEngine
from rederive.ir.terms import Row

MODULES, PROCEDURES, LAYERS = 283, 1630, 8
ASTRAY = 0.01
VERBS = "close copy find get init make open read set show sort write".split()
NOUNS = "buffer file key list name node page row size table time user".split()
STRATEGIES = ("on_demand", "filtration", "materialized")
EVALUATIONS = 20

Link = tuple[str, str]

BASE = """
    .decl module(m: symbol)
    .decl procedure(p: symbol, name: symbol, lines: number)
    .decl defined_in(p: symbol, m: symbol)
    .decl import(m: symbol, p: symbol)
"""
# The paper's own rules for mod_dep.
BASED_ON = """
    .decl mod_dep(x: symbol, y: symbol)
    mod_dep(x, y) :- module(x), module(y), procedure(p, _, _), import(x, p), defined_in(p, y).
    mod_dep(x, y) :- mod_dep(x, z), mod_dep(z, y).
    .decl imported(m: symbol, p: symbol)
    imported(m, p) :- import(m, p).
    imported(m, p) :- mod_dep(m, y), import(y, p).
"""


# The data


@dataclass(frozen=True, slots=True)
class Library:
    """Modules in order of their layers; procedures with the module, the name and the lines of code of each."""

    modules: tuple[str, ...]
    procedures: tuple[tuple[str, str, str, int], ...]
    links: tuple[Link, ...]

    @property
    def rows(self) -> dict[str, list[Row]]:
        return {
            "module": [(m,) for m in self.modules],
            "procedure": [(p, name, lines) for p, _, name, lines in self.procedures],
            "defined_in": [(p, m) for p, m, _, _ in self.procedures],
            "import": list(self.links),
        }


def generate(seed: int) -> Library:
    """The same library for the same seed.

    >>> library = generate(seed=1)
    >>> len(library.modules), len(library.procedures), library == generate(seed=1)
    (283, 1630, True)
    """
    random = Random(seed)
    modules = tuple(f"m{i:03}" for i in range(MODULES))
    homes = [*modules, *random.choices(modules, k=PROCEDURES - MODULES)]
    procedures = tuple((f"p{i:04}", home, _name(random), _lines(random)) for i, home in enumerate(homes))
    exported = _exported(procedures)
    links: dict[Link, None] = {}
    for module in modules:
        for _ in range(random.randint(1, 3)):
            used = exported[_used(module, modules, random)]
            links.update(((module, p), None) for p in random.sample(used, min(random.randint(1, 3), len(used))))
    return Library(modules, procedures, tuple(links))


def new_links(library: Library, importers: Sequence[str], number: int, seed: int) -> list[Link]:
    """Links that are not there yet, from some of these modules to procedures that they might use."""
    random, there, exported = Random(seed), set(library.links), _exported(library.procedures)
    links: dict[Link, None] = {}
    while len(links) < number:
        module = random.choice(importers)
        link = (module, random.choice(exported[_used(module, library.modules, random)]))
        if link not in there:
            links[link] = None
    return list(links)


def _exported(procedures: Sequence[tuple[str, str, str, int]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for procedure, module, _, _ in procedures:
        found.setdefault(module, []).append(procedure)
    return found


def _used(module: str, modules: Sequence[str], random: Random) -> str:
    """A module that this one may use: four times in five out of the two layers below, else from anywhere further down."""
    place = modules.index(module)
    layer = place * LAYERS // len(modules)
    below = -(-layer * len(modules) // LAYERS)
    near = max(0, -(-(layer - 2) * len(modules) // LAYERS))
    if not below or random.random() < ASTRAY:
        return random.choice([other for other in modules if other != module])
    return modules[random.randrange(near if random.random() < 0.8 else 0, below)]


def _name(random: Random) -> str:
    return f"{random.choice(VERBS)}_{random.choice(NOUNS)}"


def _lines(random: Random) -> int:
    """Most procedures are short: 25 lines at the median, under 10 one in five."""
    return 1 + int(random.lognormvariate(3.2, 1.1))


# The views


@dataclass(frozen=True, slots=True)
class View:
    """A line of the paper's table: its wording, its ratio, its rules, and the modules whose new links may matter to it."""

    title: str
    ratio: float
    rules: str
    importers: Sequence[str]


def views(library: Library, module: str | None) -> Iterator[View]:
    """The four views, for one module M or, with M as a column, for every module."""
    m, column = (f'"{module}"', "") if module else ("m", "m, ")
    below = _based_on(library, module) if module else library.modules
    own = [module] if module else library.modules
    name = next(name for p, _, name, _ in library.procedures if (library.modules[-1], p) in library.links)
    prefix = name[: name.index("_") + 1]
    head = f"procedures({column}p)"
    declared = f"{'.decl procedures(m: symbol, p: symbol)' if column else '.decl procedures(p: symbol)'} .output procedures"
    modules = f".decl modules({'m: symbol, ' if column else ''}y: symbol) .output modules modules({column}y) :- mod_dep({m}, y)."
    yield View(
        "1 modules and procedures, directly or indirectly",
        5.5,
        f"{BASED_ON} {modules} {declared} {head} :- imported({m}, p).",
        below,
    )
    yield View(
        "2 imported, with a name prefix",
        1.2,
        f'{declared} {head} :- import({m}, p), procedure(p, name, _), substr(name, 0, {len(prefix)}) = "{prefix}".',
        own,
    )
    yield View(
        "3 imported, less than 10 lines",
        15,
        f"{declared} {head} :- import({m}, p), procedure(p, _, lines), lines < 10.",
        own,
    )
    yield View(
        "4 a given name, directly or indirectly",
        8.8,
        f'{BASED_ON} {declared} {head} :- imported({m}, p), procedure(p, "{name}", _).',
        below,
    )


def _based_on(library: Library, module: str) -> list[str]:
    """The module and all those it is based on."""
    db = opened(library, "on_demand", f"{BASED_ON} .output mod_dep")
    return sorted({module, *(str(y) for _, y in db.rows("mod_dep", x=module))})


def opened(library: Library, strategy: str, rules: str) -> rederive.Database:
    db = rederive.open(strategy=strategy)
    db.define(BASE)
    db.load_typed(library.rows)
    db.define(rules)
    return db


# The measurements


@dataclass(frozen=True, slots=True)
class Line:
    """One view measured: medians. `same`: all strategies and recomputation found the same changes, row by row."""

    view: View
    incremental: dict[str, float]
    recompute: float
    same: bool


def run(links: int, seed: int) -> Iterator[Section]:
    """The table twice: with M as a column, for every module, and for one given M."""
    library = generate(seed)
    for module in (None, library.modules[-1]):
        yield section(library, module, [measure(library, view, links, seed) for view in views(library, module)], links)


def section(library: Library, module: str | None, lines: Sequence[Line], links: int) -> Section:
    figures = []
    for line in lines:
        for strategy, seconds in line.incremental.items():
            goal = Goal(f"{line.view.ratio:g}x", line.recompute >= line.view.ratio * seconds)
            figures.append(Figure(f"{line.view.title}: {strategy}", seconds, line.recompute, goal))
    which = "for every module M" if module is None else f"for one module M ({module})"
    return Section(
        f"SJ96's table, {which}: a new import link, {links} random ones",
        tuple(figures),
        (Check("all strategies and recomputation find the same changes, row by row", all(line.same for line in lines)),),
        (
            f"{MODULES} modules, {PROCEDURES:,} procedures, {len(library.links):,} import links. Goals are the paper's ratios.",
            "Recomputing is the same transaction without a view, then one evaluation of the view by compiled rules, bottom up or"
            " goal-directed, whichever is faster here. Medians.",
            "Every link is one that may matter to the view: from M, or for views 1 and 4 from a module that M is based on."
            if module
            else "The links come from any module.",
        ),
        peer="recomputing",
    )


def measure(library: Library, view: View, number: int, seed: int) -> Line:
    """Each link is inserted under each strategy by turns, and deleted again outside of the timing."""
    links = new_links(library, view.importers, number, seed)
    databases = {strategy: opened(library, strategy, view.rules) for strategy in STRATEGIES}
    plain, again = opened(library, "recompute", ""), opened(library, "recompute", view.rules)
    times: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    bare, same = [], True
    for i, link in enumerate(links):
        changes = []
        for strategy, db in databases.items():
            seconds, change = inserted(db, link)
            times[strategy].append(seconds)
            changes.append(change)
        bare.append(inserted(plain, link)[0])
        if i < EVALUATIONS:
            changes.append(inserted(again, link)[1])
        same = same and all(change == changes[0] for change in changes)
    evaluation = min(median(way() for _ in range(EVALUATIONS)) for way in evaluations(again, databases["on_demand"]))
    return Line(view, {strategy: median(of) for strategy, of in times.items()}, median(bare) + evaluation, same)


def inserted(db: rederive.Database, link: Link) -> tuple[float, dict[str, tuple[list[Row], list[Row]]]]:
    """How long inserting a link takes, and the changes that it makes. Then it is deleted again."""
    seconds, result = timed(lambda: insert(db, "import", link))
    changes = {name: (change.plus, change.minus) for name, change in result.changes.items()}
    delete(db, "import", link)
    return seconds, changes


def evaluations(again: rederive.Database, derived: rederive.Database) -> tuple[Callable[[], float], Callable[[], float]]:
    """The two ways of this engine to evaluate views once, from scratch, by rules that are compiled already."""
    return lambda: bottom_up(again), lambda: timed(lambda: [derived.engine.size(name) for name in derived.monitored])[0]


def bottom_up(db: rederive.Database) -> float:
    """The first phase of each section of `recompute` evaluates the old state; rolling back forgets it."""
    engine = db.engine
    assert isinstance(engine, ResidentEngine)

    def evaluate() -> None:
        for linked in engine.sections:
            linked.phases[0].run(engine.meter, engine.limits)

    seconds, _ = timed(evaluate)
    engine.rollback()
    return seconds
