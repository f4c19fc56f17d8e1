"""Types of variables and terms. Strict: no value changes its type by itself; a literal takes the type that its place needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rederive.errors import Span, TypeClash, UnknownName, WrongArity
from rederive.ir.printing import show_term
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator, Relation, Rule
from rederive.ir.terms import FLOAT, SYMBOL, Call, Constant, Kind, Term, Type, Variable
from rederive.scalar.datalog.signatures import FUNCTORS, Functor

# The other kinds that a literal can take.
_ADAPTS: Final[Mapping[Kind, frozenset[Kind]]] = {
    Kind.NUMBER: frozenset({Kind.UNSIGNED, Kind.FLOAT, Kind.DECIMAL}),
    Kind.FLOAT: frozenset({Kind.DECIMAL}),
    Kind.SYMBOL: frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.DECIMAL}),
}
_ON_SYMBOLS: Final = frozenset({Operator.MATCH, Operator.CONTAINS, Operator.NOT_MATCH, Operator.NOT_CONTAINS})


def variable_types(rule: Rule, relations: Mapping[str, Relation]) -> dict[str, Type]:
    """The type of every variable of a safe rule; raises TypeClash, WrongArity or UnknownName.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER
    >>> p = Relation("p", (Column("n", NUMBER),))
    >>> x, y = Variable("x"), Variable("y")
    >>> types = variable_types(Rule(Atom("p", (y,)), (Atom("p", (x,)), Comparison(Operator.EQ, y, x))), {"p": p})
    >>> {name: str(type) for name, type in types.items()}
    {'x': 'number', 'y': 'number'}
    """
    return _infer((*rule.body, rule.head), relations)


def body_types(body: Sequence[Literal], relations: Mapping[str, Relation]) -> dict[str, Type]:
    """As `variable_types`, for a body whose head is yet to be declared."""
    return _infer(body, relations)


def term_type(term: Term, types: Mapping[str, Type]) -> Type:
    """The type of a term whose variables have these types.

    >>> from rederive.ir.terms import NUMBER
    >>> str(term_type(Call("+", (Variable("x"), Constant(1, NUMBER))), {"x": FLOAT}))
    'float'
    """
    match term:
        case Variable():
            return types[term.name]
        case Constant():
            return term.type
        case Call(gives=Type() as type):
            return type
        case Call():
            # Literals decide only where nothing else does: in x + 1 the type is that of x.
            fixed = anchor(term, types)
            return fixed if fixed is not None else _widest(term_type(argument, types) for argument in term.arguments)


def anchor(term: Term, types: Mapping[str, Type]) -> Type | None:
    """The type that a term has by itself; None where it is made of literals that adapt, or of variables not known yet."""
    match term:
        case Variable():
            return types.get(term.name)
        case Constant():
            return None if term.type.kind in _ADAPTS else term.type
        case Call(gives=Type() as type):
            return type
        case Call():
            functor = functor_of(term)
            return functor.gives or next((t for a in term.arguments if (t := anchor(a, types)) is not None), None)


def common_type(left: Term, right: Term, types: Mapping[str, Type]) -> Type:
    """The one type of both sides of a comparison."""
    return anchor(left, types) or anchor(right, types) or _widest((term_type(left, types), term_type(right, types)))


def check_literal(constant: Constant, needed: Type) -> None:
    """Raise TypeClash unless a constant has the type, or is a literal that can take it."""
    if constant.type != needed and needed.kind not in _ADAPTS.get(constant.type.kind, frozenset()):
        raise _clash(constant, constant.type, needed)


def _widest(literals: Iterable[Type]) -> Type:
    """The type of literals among themselves: `1 + 2.5` is a float."""
    found = list(literals)
    return FLOAT if FLOAT in found else found[0]


def relation_of(name: str, arity: int, relations: Mapping[str, Relation], span: Span | None) -> Relation:
    """The declared relation, if it has so many columns."""
    relation = relations.get(name)
    if relation is None:
        raise UnknownName("relation", name, (known for known in relations if "." not in known), span)
    if relation.arity != arity:
        raise WrongArity(
            f"'{name}' has {_count(relation.arity, 'column')}, but {_count(arity, 'argument')} here",
            span,
            hint=f"its columns are {', '.join(column.name for column in relation.columns)}" if relation.columns else None,
        )
    return relation


def functor_of(call: Call) -> Functor:
    """The functor that a call names, if it takes so many arguments."""
    functor = FUNCTORS.get(call.functor)
    if functor is None:
        raise UnknownName("functor", call.functor, (name for name in FUNCTORS if name.isidentifier()), call.span)
    least, most = functor.arity
    if not least <= len(call.arguments) <= most:
        needed = str(least) if least == most else f"{least} or more" if most > 2 else f"{least} or {most}"
        raise WrongArity(f"'{functor.name}' takes {needed} arguments, not {len(call.arguments)}", call.span)
    return functor


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _infer(literals: Sequence[Literal], relations: Mapping[str, Relation]) -> dict[str, Type]:
    """Types flow from the atoms through the comparisons until nothing changes; literals decide only what is left."""
    inference = _Inference()
    comparisons = []
    for literal in literals:
        match literal:
            case Atom():
                inference.atom(literal, relations)
            case Negation():
                inference.atom(literal.atom, relations)
            case Comparison():
                comparisons.append(literal)
    # Each round but the last finds a type of some variable, so there are at most as many as variables.
    while inference.comparisons(comparisons):
        pass
    return inference.types


class _Inference:
    """The types found so far and where each was found."""

    def __init__(self) -> None:
        self.types: dict[str, Type] = {}
        self._origins: dict[str, Span | None] = {}

    def atom(self, atom: Atom, relations: Mapping[str, Relation]) -> None:
        relation = relation_of(atom.relation, len(atom.terms), relations, atom.span)
        # A column's declared type is the only source of types besides functors and literals.
        for term, column in zip(atom.terms, relation.columns, strict=True):
            self._demand(term, column.type)

    def comparisons(self, comparisons: Sequence[Comparison]) -> bool:
        """One round; whether it found a type. Literals among themselves speak when nothing else has."""
        known = len(self.types)
        for comparison in comparisons:
            self._calls(comparison.left)
            self._calls(comparison.right)
            # Both sides of a comparison have one type; a side that is known fixes the other.
            side = SYMBOL if comparison.operator in _ON_SYMBOLS else self._anchor(comparison)
            if side is not None:
                self._demand(comparison.left, side)
                self._demand(comparison.right, side)
        if len(self.types) > known:
            return True
        # At most one variable by literals, then back to the others: its type may decide them.
        return any(self._by_literals(comparison) for comparison in comparisons)

    def _anchor(self, comparison: Comparison) -> Type | None:
        return anchor(comparison.left, self.types) or anchor(comparison.right, self.types)

    def _by_literals(self, comparison: Comparison) -> bool:
        """`x = 1 + 2` makes x a number; whether this is such a comparison."""
        for side, other in ((comparison.left, comparison.right), (comparison.right, comparison.left)):
            if isinstance(side, Variable) and side.name not in self.types and self._constant(other):
                self._demand(side, term_type(other, self.types))
                return True
        return False

    def _constant(self, term: Term) -> bool:
        match term:
            case Variable():
                return False
            case Constant():
                return True
            case Call():
                return all(map(self._constant, term.arguments))

    def _calls(self, term: Term) -> None:
        """Check the arguments of every call inside a term."""
        if not isinstance(term, Call):
            return
        for argument in term.arguments:
            self._calls(argument)
        if term.gives is not None:
            return
        functor = functor_of(term)
        # A functor over arguments of one type: the first type that is known is the type of all.
        shared = anchor(term, self.types) if functor.same else None
        if shared is not None:
            self._demand(term, shared)
        else:
            self._accepts(functor, term)

    def _accepts(self, functor: Functor, call: Call) -> None:
        for position, argument in enumerate(call.arguments):
            kinds = functor.accepts(position)
            if len(kinds) == 1:
                self._demand(argument, Type(next(iter(kinds))))
            elif self._settled(argument):
                _check_kind(functor, argument, term_type(argument, self.types))

    def _settled(self, term: Term) -> bool:
        return self._constant(term) or anchor(term, self.types) is not None

    def _demand(self, term: Term, needed: Type) -> None:
        match term:
            case Variable():
                self._demand_variable(term, needed)
            case Constant():
                check_literal(term, needed)
            case Call():
                self._demand_call(term, needed)

    def _demand_variable(self, variable: Variable, needed: Type) -> None:
        found = self.types.setdefault(variable.name, needed)
        origin = self._origins.setdefault(variable.name, variable.span)
        # No coercion between variables: a type found twice must be the same.
        if found != needed:
            raise _clash(variable, found, needed, origin)

    def _demand_call(self, call: Call, needed: Type) -> None:
        gives = call.gives or functor_of(call).gives
        if gives is not None:
            if gives != needed:
                raise _clash(call, gives, needed)
            return
        functor = functor_of(call)
        _check_kind(functor, call, needed)
        for argument in call.arguments:
            self._demand(argument, needed)


def _check_kind(functor: Functor, term: Term, found: Type) -> None:
    kinds = functor.same or functor.takes[0]
    if found.kind not in kinds:
        raise TypeClash(
            f"'{functor.name}' does not take {found}", term.span, hint=f"it takes {', '.join(sorted(k.value for k in kinds))}"
        )


def _clash(term: Term, found: Type, needed: Type, origin: Span | None = None) -> TypeClash:
    shown = show_term(term) if term.span is None else term.span.text
    known = f"'{shown}' is {found} at {origin.line}:{origin.column}" if origin is not None else None
    return TypeClash(f"'{shown}' is {found}, but {needed} is needed here", term.span, hint=known)
