"""Random programs as Datalog text, random rows for them, and random transactions.

Programs are safe and stratified by construction. The domains are tiny, so that rows have several derivations, deletions are
phantom, and rows leave and come back. A program is built in layers: each layer is one view, or two that recurse through each
other, and reads the layers below it; negation and aggregates read only below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

Draw = st.DrawFn
Row = tuple[Any, ...]
Change = tuple[str, str, list[Row]]

DOMAIN: dict[str, list[Any]] = {"symbol": ["a", "b", "c", "d"], "number": [0, 1, 2, 3, 4], "float": [0.1, 0.2, 0.3, 0.5]}
LETTER = {"symbol": "s", "number": "n", "float": "f"}
MOSTLY_SYMBOLS = st.sampled_from(["symbol"] * 6 + ["number"] * 4 + ["float"])


@dataclass(frozen=True)
class Signature:
    """A relation's name and the types of its columns."""

    name: str
    types: tuple[str, ...]

    @property
    def declaration(self) -> str:
        return f".decl {self.name}({', '.join(f'c{i}: {kind}' for i, kind in enumerate(self.types))})"


@dataclass(frozen=True)
class Sample:
    """A generated program: its text, its base relations and its views."""

    bases: tuple[Signature, ...]
    views: tuple[Signature, ...] = ()
    rules: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        declarations = [signature.declaration for signature in self.bases + self.views]
        return "\n".join([*declarations, *self.rules, *(f".output {name}" for name in self.outputs)]) + "\n"

    def __repr__(self) -> str:
        return f"Sample(text='''\n{self.text}''')"


@dataclass
class Body:
    """A rule's body while it is drawn: its literals and the variables that positive atoms have bound, by type."""

    prefix: str = ""
    literals: list[str] = field(default_factory=list)
    bound: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in DOMAIN})

    def bind(self, name: str, kind: str) -> str:
        if name not in self.bound[kind]:
            self.bound[kind].append(name)
        return name


def constant(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def constants(kind: str) -> st.SearchStrategy[str]:
    return st.sampled_from(DOMAIN[kind]).map(constant)


def rarely(draw: Draw, one_in: int) -> bool:
    return draw(st.integers(1, one_in)) == one_in


# -- literals ---------------------------------------------------------------------------------------------------------


def atom(draw: Draw, body: Body, relation: Signature, outer: Body | None = None) -> str:
    """A positive atom; its variables come from a pool of three for each type, so that they meet, or from an outer body."""
    return f"{relation.name}({', '.join(column(draw, body, kind, outer) for kind in relation.types)})"


def column(draw: Draw, body: Body, kind: str, outer: Body | None) -> str:
    if outer is not None and outer.bound[kind] and draw(st.booleans()):
        return draw(st.sampled_from(outer.bound[kind]))
    match draw(st.sampled_from("vvvvvvc_")):
        case "v":
            return body.bind(f"{body.prefix}{LETTER[kind]}{draw(st.integers(0, 2))}", kind)
        case "c":
            return draw(constants(kind))
        case _:
            return "_"


def bound_term(draw: Draw, body: Body, kind: str) -> str:
    known = body.bound[kind]
    return draw(st.sampled_from(known)) if known and not rarely(draw, 6) else draw(constants(kind))


def negation(draw: Draw, body: Body, relation: Signature) -> str:
    terms = ["_" if rarely(draw, 4) else bound_term(draw, body, kind) for kind in relation.types]
    return f"!{relation.name}({', '.join(terms)})"


def comparison(draw: Draw, body: Body) -> list[str]:
    """A comparison between bound terms, or nothing where nothing is bound."""
    kinds = [kind for kind, names in body.bound.items() if names]
    if not kinds:
        return []
    kind = draw(st.sampled_from(kinds))
    left = draw(st.sampled_from(body.bound[kind]))
    others = [name for name in body.bound[kind] if name != left]
    right = draw(st.sampled_from(others) if others and not rarely(draw, 3) else constants(kind))
    return [f"{left} {draw(st.sampled_from(['<', '!=', '=', '<=', '>', '>=']))} {right}"]


def disjunction(draw: Draw, body: Body, lower: Sequence[Signature]) -> list[str]:
    """`(a ; b)`. Variables that are new inside one branch stay there; an aggregate may have none, as it counts bindings."""
    sides: list[str] = []
    for _ in range(2):
        inner = replace(body, bound={kind: list(names) for kind, names in body.bound.items()})
        known = comparison(draw, inner) if draw(st.booleans()) else []
        sides += known or [(membership if body.prefix else atom)(draw, inner, draw(st.sampled_from(lower)))]
    return [f"({sides[0]} ; {sides[1]})"]


def membership(draw: Draw, body: Body, relation: Signature) -> str:
    return f"{relation.name}({', '.join(bound_term(draw, body, kind) for kind in relation.types)})"


def decorate(draw: Draw, body: Body, lower: Sequence[Signature]) -> None:
    """Perhaps a negation, a comparison, a disjunction."""
    if rarely(draw, 4):
        body.literals.append(negation(draw, body, draw(st.sampled_from(lower))))
    if rarely(draw, 4):
        body.literals += comparison(draw, body)
    if rarely(draw, 8):
        body.literals += disjunction(draw, body, lower)


# -- rules ------------------------------------------------------------------------------------------------------------


def computed(draw: Draw, body: Body, kind: str, bounded: bool) -> str:
    """A head term: a bound variable, a constant, or arithmetic, which recursion must bound."""
    known = body.bound[kind]
    if not known or kind == "float" or not rarely(draw, 5):
        return bound_term(draw, body, kind)
    one, other = draw(st.sampled_from(known)), bound_term(draw, body, kind)
    if kind == "symbol":
        return one if bounded else draw(st.sampled_from([f"cat({one}, {other})", f"substr({one}, 0, 1)", f"min({one}, {other})"]))
    if bounded:
        fresh = f"z{len(body.literals)}"
        body.literals.append(f"{fresh} = {one} + 1, {fresh} < 5")
        return fresh
    terms = [f"{one} + 1", f"{one} - {other}", f"{one} * 2", f"max({one}, {other})", f"-{one}", f"{one} % 3"]
    return draw(st.sampled_from(terms))


def rule(draw: Draw, head: Signature, positive: Sequence[Signature], lower: Sequence[Signature], bounded: bool) -> str:
    """One rule that reads each of `positive`; `bounded` where its head is read by its own body, perhaps at a distance."""
    body = Body()
    for relation in positive:
        body.literals.append(atom(draw, body, relation))
    decorate(draw, body, lower)
    terms = [computed(draw, body, kind, bounded) for kind in head.types]
    return f"{head.name}({', '.join(terms)}) :- {', '.join(draw(st.permutations(body.literals)))}."


def aggregate(draw: Draw, name: str, groups: Sequence[str], lower: Sequence[Signature]) -> tuple[Signature, str]:
    """`name(group..., r) :- outer, r = function value : { inner }.` and its signature."""
    outer, inner = Body(), Body(prefix="i")
    if groups or rarely(draw, 3):
        outer.literals.append(atom(draw, outer, draw(st.sampled_from(lower))))
    for relation in draw(st.lists(st.sampled_from(lower), min_size=1, max_size=2)):
        inner.literals.append(atom(draw, inner, relation, outer))
    function, value, result = draw(st.sampled_from(folds(inner)))
    decorate(draw, inner, lower)
    terms = [bound_term(draw, outer, kind) for kind in groups]
    fold = f"r = {function} {value} : {{ {', '.join(inner.literals)} }}"
    tests = [f"r {draw(st.sampled_from(['<', '>', '!=']))} {draw(constants(result))}"] if rarely(draw, 5) else []
    text = f"{name}({', '.join([*terms, 'r'])}) :- {', '.join([*outer.literals, fold, *tests])}."
    return Signature(name, (*groups, result)), text


def folds(inner: Body) -> list[tuple[str, str, str]]:
    """What can be folded over this body: the function, its variable and the type of the result."""
    known = [(name, kind) for kind in ("number", "float") for name in inner.bound[kind]]
    same = [(function, name, kind) for function in ("sum", "min", "max") for name, kind in known]
    return [("count", "", "number"), *same, *(("mean", name, "float") for name, _ in known)]


# -- layers -----------------------------------------------------------------------------------------------------------


def columns(draw: Draw, lower: Sequence[Signature], least: int, most: int) -> tuple[str, ...]:
    """Types for a view's columns, as frequent as below it, so that its rules find variables for them."""
    kinds = st.sampled_from([kind for relation in lower for kind in relation.types])
    return tuple(draw(st.lists(kinds, min_size=least, max_size=most)))


def plain_layer(draw: Draw, name: str, lower: Sequence[Signature]) -> tuple[list[Signature], list[str]]:
    """One view without recursion: a union of one to three rules."""
    view = Signature(name, columns(draw, lower, 0 if rarely(draw, 8) else 1, 3))
    bodies = draw(st.lists(st.lists(st.sampled_from(lower), min_size=1, max_size=3), min_size=1, max_size=3))
    return [view], [rule(draw, view, body, lower, bounded=False) for body in bodies]


def aggregate_layer(draw: Draw, name: str, lower: Sequence[Signature]) -> tuple[list[Signature], list[str]]:
    view, text = aggregate(draw, name, columns(draw, lower, 0, 2), lower)
    return [view], [text]


def closure_layer(draw: Draw, name: str, lower: Sequence[Signature]) -> tuple[list[Signature], list[str]]:
    """The closure of a binary relation: right-linear, left-linear or non-linear; else as `recursive_layer`."""
    binary = [relation for relation in lower if len(relation.types) == 2 and len(set(relation.types)) == 1]
    if not binary:
        return recursive_layer(draw, name, lower)
    edge = draw(st.sampled_from(binary))
    first, last = draw(st.sampled_from([(edge.name, name), (name, edge.name), (name, name)]))
    step = f"{first}(x, z), {last}(z, y)"
    return [Signature(name, edge.types)], [f"{name}(x, y) :- {edge.name}(x, y).", f"{name}(x, y) :- {step}."]


def recursive_layer(draw: Draw, name: str, lower: Sequence[Signature]) -> tuple[list[Signature], list[str]]:
    """One or two views that may read themselves and each other."""
    names = [name, f"{name}m"] if draw(st.booleans()) else [name]
    views = [Signature(each, columns(draw, lower, 1, 2)) for each in names]
    rules = []
    for view in views:
        rules.append(rule(draw, view, [draw(st.sampled_from(lower))], lower, bounded=False))
        for _ in range(draw(st.integers(1, 2))):
            positive = [draw(st.sampled_from(views)), draw(st.sampled_from([*lower, *views]))]
            rules.append(rule(draw, view, positive, lower, bounded=True))
    return views, rules


FLAT_LAYERS = (plain_layer, plain_layer, aggregate_layer)
ALL_LAYERS = (*FLAT_LAYERS, closure_layer, recursive_layer)


@st.composite
def samples(draw: Draw, recursive: bool = True) -> Sample:
    """A safe, stratified program; without recursion on request."""
    bases = draw(st.lists(st.lists(MOSTLY_SYMBOLS, min_size=1, max_size=3), min_size=1, max_size=3))
    sample = Sample(tuple(Signature(f"b{i}", tuple(types)) for i, types in enumerate(bases)))
    for i in range(draw(st.integers(1, 4))):
        layer = draw(st.sampled_from(ALL_LAYERS if recursive else FLAT_LAYERS))
        views, rules = layer(draw, f"v{i}", sample.bases + sample.views)
        sample = replace(sample, views=sample.views + tuple(views), rules=sample.rules + tuple(rules))
    outputs = draw(st.lists(st.sampled_from([view.name for view in sample.views]), unique=True)) if draw(st.booleans()) else []
    return replace(sample, outputs=tuple(outputs))


# -- data -------------------------------------------------------------------------------------------------------------


def rows_of(relation: Signature, least: int, most: int) -> st.SearchStrategy[list[Row]]:
    """Distinct rows; never more asked for than a column of four values can tell apart."""
    row = st.tuples(*(st.sampled_from(DOMAIN[kind]) for kind in relation.types))
    return st.lists(row, min_size=least, max_size=most, unique=True)


def transactions(bases: Sequence[Signature]) -> st.SearchStrategy[list[Change]]:
    """One transaction: inserts and deletes in order. Rows may be present, absent, or in both."""
    calls = [st.tuples(st.sampled_from(["insert", "delete"]), st.just(base.name), rows_of(base, 0, 4)) for base in bases]
    return st.lists(st.one_of(calls), max_size=4)


@st.composite
def scenarios(draw: Draw, recursive: bool = True) -> tuple[Sample, dict[str, list[Row]], list[list[Change]]]:
    """A program, the initial rows of its base relations, and one to six transactions."""
    sample = draw(samples(recursive))
    start = {base.name: draw(rows_of(base, draw(st.sampled_from([4, 4, 4, 0])), 12)) for base in sample.bases}
    return sample, start, draw(st.lists(transactions(sample.bases), min_size=1, max_size=6))
