"""SJ96's table (section 5): views over a database of software modules, and a new import link from a module to a procedure.

The paper's database held 283 modules with 1,630 exported procedures; this one is as large, and generated. Modules lie in layers.
A module uses some others, most of them one or two layers below, and imports one to three procedures of each; those of the lowest
layer use none. One use in a hundred goes anywhere, so there are cycles, but few.

The paper does not tell the number of import links. A procedure is exported for others to import it, so one importer each is the
least that makes sense, and a useful one has several. Three importers for a procedure, on average, are taken here: some 20
imported procedures for a module. The table is measured a second time with one importer each, to show how far the ratios hang on
that choice: that of view 4 does. In a dense graph a new link seldom connects what was not connected; in a thin one it does, and
then all that is based on the module is affected, while only the procedures of one name are asked for.

"Response times for complete recomputation": in the paper's setting, clients keep the answers, and wait for the new one. So
recomputing is the transaction without a view, then all rows of each view, delivered; maintaining is the transaction, then the
rows that enter and leave, delivered. What evaluating the answer takes without delivering its rows is told beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from statistics import median

import rederive
from benchmarks.report import Check, Figure, Goal, Section, Unit, shown
from benchmarks.rounds import delete, insert, timed
from rederive.delta import sort_rows
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.resident.storage.table import CodedRows
from rederive.ir.terms import Row

MODULES, PROCEDURES, LAYERS = 283, 1630, 8
ASTRAY = 0.01
VERBS = "close copy find get init make open read set show sort write".split()
NOUNS = "buffer file key list name node page row size table time user".split()
STRATEGIES = ("on_demand", "filtration", "materialized")
EVALUATIONS = 9
IMPORTERS, FEWER = 3.0, 1.0  # of an exported procedure, on average

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


def generate(seed: int, importers: float = IMPORTERS) -> Library:
    """The same library for the same seed, with this many importers of a procedure on average.

    >>> library = generate(seed=1)
    >>> len(library.modules), len(library.procedures), library == generate(seed=1)
    (283, 1630, True)
    """
    random = Random(seed)
    modules = tuple(f"m{i:03}" for i in range(MODULES))
    homes = [*modules, *random.choices(modules, k=PROCEDURES - MODULES)]
    procedures = tuple((f"p{i:04}", home, _name(random), _lines(random)) for i, home in enumerate(homes))
    exported = _exported(procedures)
    above = modules[_layer_start(1) :]
    importing = chain(above, iter(lambda: random.choice(above), None))  # each once, then whichever
    links: dict[Link, None] = {}
    while len(links) < importers * PROCEDURES:
        module = next(importing)
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
    layer = modules.index(module) * LAYERS // MODULES
    if not layer or random.random() < ASTRAY:
        return random.choice([other for other in modules if other != module])
    lowest = layer - 2 if random.random() < 0.8 else 0
    return modules[random.randrange(_layer_start(max(lowest, 0)), _layer_start(layer))]


def _layer_start(layer: int) -> int:
    """The place of the first module of a layer.

    >>> [_layer_start(layer) for layer in (0, 1, 2, LAYERS)]
    [0, 36, 71, 283]
    """
    return -(-layer * MODULES // LAYERS)


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
    above = library.modules[_layer_start(1) :]
    below = sorted(_based_on(library, module).intersection(above)) if module else above
    own = [module] if module else above
    main = module or main_module(library)
    first = next(p for m, p in library.links if m == main)
    name = next(name for p, _, name, _ in library.procedures if p == first)
    prefix = name[: name.index("_") + 1]
    head = f"procedures({column}p)"
    declared = f"{'.decl procedures(m: symbol, p: symbol)' if column else '.decl procedures(p: symbol)'} .output procedures"
    modules = f".decl modules({'m: symbol, ' if column else ''}y: symbol) .output modules modules({column}y) :- mod_dep({m}, y)."
    yield View(
        "1 modules and procedures",
        5.5,
        f"{BASED_ON} {modules} {declared} {head} :- imported({m}, p).",
        below,
    )
    yield View(
        "2 a name prefix",
        1.2,
        f'{declared} {head} :- import({m}, p), procedure(p, name, _), substr(name, 0, {len(prefix)}) = "{prefix}".',
        own,
    )
    yield View(
        "3 under 10 lines",
        15,
        f"{declared} {head} :- import({m}, p), procedure(p, _, lines), lines < 10.",
        own,
    )
    yield View(
        "4 a given name",
        8.8,
        f'{BASED_ON} {declared} {head} :- imported({m}, p), procedure(p, "{name}", _).',
        below,
    )


def main_module(library: Library) -> str:
    """The module that is based on most others: the main module of the largest program."""
    return max(library.modules, key=lambda module: len(_based_on(library, module)))


def _based_on(library: Library, module: str) -> set[str]:
    """The module and all those it is based on."""
    homes = {p: home for p, home, _, _ in library.procedures}
    found, waiting = {module}, [module]
    while waiting:
        importer = waiting.pop()
        used = {homes[p] for m, p in library.links if m == importer} - found
        found |= used
        waiting += used
    return found


def opened(library: Library, strategy: str, rules: str) -> rederive.Database:
    db = rederive.open(strategy=strategy)
    db.define(BASE)
    db.pipeline.load(library.rows)
    db.define(rules)
    return db


# The measurements


@dataclass(frozen=True, slots=True)
class Line:
    """One view measured: medians. `recompute`: the new answer, whole; `both`: by strategy recompute, the change.

    `ways`: how long the answer takes bottom up, and goal-directed; `evaluated`: the shorter of both without its rows.

    `same`: all strategies and recomputation found the same changes, row by row, and every evaluation as many rows as are stored.
    """

    view: View
    incremental: dict[str, float]
    recompute: float
    ways: tuple[float, float]
    evaluated: float
    both: float
    same: bool


def run(links: int, seed: int) -> Iterator[Section]:
    """The table with M as a column, for every module, twice, and for one given M."""
    library, thinner = generate(seed), generate(seed, FEWER)
    every = [measure(library, view, links, seed) for view in views(library, None)]
    yield section("for every module M", library, every, links, notes=EVERY_MODULE, goals=True)
    fewer = [measure(thinner, view, links, seed) for view in views(thinner, None)]
    yield section(f"for every module M, with {FEWER:g} importer for a procedure", thinner, fewer, links, notes=EVERY_MODULE)
    one = [measure(library, view, links, seed) for view in views(library, main_module(library))]
    yield section("for one module M", library, one, links, notes=ONE_MODULE)


EVERY_MODULE = ("The links come from modules of every layer but the lowest.",)
ONE_MODULE = (
    "Every link is one that may matter to the view: from M, or for views 1 and 4 from a module that M is based on.",
    "No goals: the paper's M is a variable of the view. With M fixed, the answers of views 2 and 3 are a handful of rows, and"
    " finding them costs less than any transaction does.",
)


def section(
    which: str, library: Library, lines: Sequence[Line], links: int, *, notes: Sequence[str], goals: bool = False
) -> Section:
    figures = []
    for line in lines:
        for strategy, seconds in line.incremental.items():
            met = line.recompute >= line.view.ratio * seconds
            goal = Goal(f"{line.view.ratio:g}x", met) if goals and strategy == "on_demand" else None
            figures.append(Figure(f"{line.view.title}: {strategy}", seconds, line.recompute, goal))
        figures.append(Figure(f"{line.view.title}: recompute", line.both, line.recompute))
    return Section(
        f"SJ96's table, {which}: a new import link, {links} random ones",
        tuple(figures),
        (Check("all strategies and recomputation find the same changes, row by row", all(line.same for line in lines)),),
        (
            f"{MODULES} modules, {PROCEDURES:,} procedures, {len(library.links):,} import links. Goals are the paper's ratios,"
            " for its own strategy.",
            "Views: 1 all modules that M is based on, and all procedures it imports directly or indirectly; 2 the procedures it"
            " imports with a name prefix; 3 those under 10 lines; 4 those with a given name, direct or indirect.",
            "Recomputing is the same transaction without a view, then the rows of the answer, by compiled rules, bottom up or"
            " goal-directed, whichever is faster here. Maintaining ends with the rows of the change. Medians. Strategy recompute"
            " evaluates both states and finds the change.",
            "The answer bottom up and goal-directed: "
            + "; ".join(f"{line.view.title[0]} {' and '.join(shown(way, Unit.SECONDS) for way in line.ways)}" for line in lines)
            + ". Evaluated only, no rows delivered: "
            + "; ".join(f"{line.view.title[0]} {shown(line.evaluated, Unit.SECONDS)}" for line in lines)
            + ".",
            *notes,
        ),
        peer="recomputing",
    )


def measure(library: Library, view: View, number: int, seed: int) -> Line:
    """Each link is inserted under each strategy by turns, and deleted again outside of the timing."""
    links = new_links(library, view.importers, number, seed)
    databases = {strategy: opened(library, strategy, view.rules) for strategy in STRATEGIES}
    plain, again = opened(library, "recompute", ""), opened(library, "recompute", view.rules)
    times: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    bare, both, same = [], [], True
    for i, link in enumerate(links):
        changes = []
        for strategy, db in databases.items():
            seconds, change = inserted(db, link)
            times[strategy].append(seconds)
            changes.append(change)
        bare.append(inserted(plain, link)[0])
        if i < EVALUATIONS:
            seconds, change = inserted(again, link)
            both.append(seconds)
            changes.append(change)
        same = same and all(change == changes[0] for change in changes)
    times_each = min(number, EVALUATIONS)
    ways = [[way(db) for _ in range(times_each)] for way, db in ((bottom_up, again), (directed, databases["on_demand"]))]
    up, down = (median(seconds for seconds, _, _ in way) for way in ways)
    evaluated = min(median(seconds for _, seconds, _ in way) for way in ways)
    stored = sum(databases["materialized"].pipeline.state.engine.size(name) for name in again.pipeline.state.monitored)
    same = same and all(size == stored for way in ways for _, _, size in way)
    medians = {strategy: median(of) for strategy, of in times.items()}
    return Line(view, medians, median(bare) + min(up, down), (up, down), evaluated, median(both), same)


def inserted(db: rederive.Database, link: Link) -> tuple[float, dict[str, tuple[list[Row], list[Row]]]]:
    """How long inserting a link takes, until the rows of the changes that it makes are there. Then it is deleted again."""

    def changed() -> dict[str, tuple[list[Row], list[Row]]]:
        return {name: (change.plus, change.minus) for name, change in insert(db, "import", link).changes.items()}

    seconds, changes = timed(changed)
    delete(db, "import", link)
    return seconds, changes


# The two ways of this engine to answer views from scratch, by compiled rules: the time with all rows delivered, the time of the
# evaluation alone, and the number of rows.


def directed(db: rederive.Database) -> tuple[float, float, int]:
    """By magic sets, as a query."""
    delivered, size = timed(lambda: sum(len(db.rows(name)) for name in db.pipeline.state.monitored))
    evaluated, _ = timed(lambda: sum(db.pipeline.state.engine.size(name) for name in db.pipeline.state.monitored))
    return delivered, evaluated, size


def bottom_up(db: rederive.Database) -> tuple[float, float, int]:
    """All phases of a section of `recompute` but the last two evaluate the old state; rolling back forgets it."""
    engine = db.pipeline.state.engine
    assert isinstance(engine, ResidentEngine)
    installed = engine.installed

    def evaluate() -> None:
        for linked in installed.sections:
            for phase in linked.phases[:-2]:
                phase.run(engine.meter, engine.limits)

    def rows(name: str) -> list[Row]:
        found = CodedRows(engine.program.relations[name], installed.tables.table(name).primary, engine.codes)
        return sort_rows(found)

    evaluated, _ = timed(evaluate)
    delivering, size = timed(lambda: sum(len(rows(name)) for name in db.pipeline.state.monitored))
    engine.rollback()
    return evaluated + delivering, evaluated, size
