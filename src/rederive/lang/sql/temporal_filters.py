"""Comparisons of a column with the current time, so that an advance costs what it lets in or out.

Joining the clock with all rows would read all of them at each advance. Instead the times of the column lie in buckets of 4
seconds, and these in buckets of 72 minutes. A bucket is tested as a whole; only in the bucket of the bound are times compared:

    at > now() - INTERVAL 1 HOUR            fine, coarse: the numbers of the buckets of now() - INTERVAL 1 HOUR

    ahead(b2)  :- buckets(b1, b2), coarse(c), b2 > c.
    whole(b1)  :- buckets(b1, b2), ahead(b2).
    whole(b1)  :- buckets(b1, b2), place(b2, c), b1 > c.            place: both numbers
    passes(at) :- times(at, b1), whole(b1).
    passes(at) :- times(at, b1), fine(b1), rederive_clock(now), at > now - 1 hour.

These are ordinary rules: each time moves from one rule to another twice in its life, on every strategy and both engines. The
index is of the times alone; dates are few, and have no buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rederive.ir.rules import CLOCK, Atom, Column, Comparison, Literal, Operator, literal_variables
from rederive.ir.terms import NUMBER, Call, Constant, Term, Variable, variables
from rederive.lang.sql.lowered_relation import TypedTerm, column_of
from rederive.lang.sql.types import DAY, MOMENT

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering

_FINE_BITS: Final = 22  # 2^22 microseconds are 4.2 seconds
_COARSE_BITS: Final = 10  # and 1,024 of these are 72 minutes
_MIRRORED: Final = {
    Operator.EQ: Operator.EQ,
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
}
_STRICT: Final = {Operator.LE: Operator.LT, Operator.GE: Operator.GT}
_BUCKET: Final = Column("bucket", NUMBER)


def require_by_time(operator: Operator, left: TypedTerm, right: TypedTerm, lower: ExpressionLowering) -> bool:
    """Keep the rows whose time fulfils a comparison with the current time; False where this is not such a comparison."""
    body = lower.scope.body
    clock = next((one for one in body.literals if isinstance(one, Atom) and one.relation == CLOCK), None)
    if clock is None or operator not in _MIRRORED:
        return False
    for column, bound, compared in ((left, right, operator), (right, left, _MIRRORED[operator])):
        if bound.nullable or set(variables(body.term(bound.term))) != set(clock.terms):
            continue
        if (found := _source(column, lower)) is not None:
            read = lower.context.columns[found[0].name]
            body.require_not_null(TypedTerm(found[0], DAY if read.type == DAY.type else MOMENT, read.nullable))
            body.add(_Filter(lower, clock, column, body.term(bound.term), compared).passes(*found))
            # Without another use of the time, the rows need no join with the clock.
            if not any(set(clock.terms) & set(literal_variables(one)) for one in body.literals if one is not clock):
                body.literals.remove(clock)
            return True
    return False


def _source(column: TypedTerm, lower: ExpressionLowering) -> tuple[Variable, Atom] | None:
    """The variable that a time is computed from, and the atom of this body that binds it; None where it may fail, or has none."""
    body = lower.scope.body
    term = body.term(column.term)
    if isinstance(term, Call) and term.functor in (DAY.functor, MOMENT.functor):
        term = term.arguments[0]
    if column.type not in (DAY, MOMENT) or not isinstance(term, Variable):
        return None
    if term.name not in lower.context.columns or lower.context.columns[term.name].type not in (DAY.type, MOMENT.type):
        return None
    atoms = (body.substitute(one) for one in body.literals if isinstance(one, Atom) and one.relation != CLOCK)
    found = next((atom for atom in atoms if isinstance(atom, Atom) and term in atom.terms), None)
    return (term, found) if found is not None else None


@dataclass(frozen=True, slots=True)
class _Filter:
    """The relations of one comparison."""

    lower: ExpressionLowering
    clock: Atom
    column: TypedTerm
    bound: Term
    operator: Operator

    def passes(self, source: Variable, atom: Atom) -> Atom:
        """Define the relation of the times that pass; the atom that the filtered body reads."""
        context = self.lower.context
        name, time = context.name("passes"), context.fresh("time")
        column = replace(context.columns[source.name], name="time", nullable=False)
        context.declare(name, [column])
        term = self.lower.scope.body.term(self.column.term)
        known: list[Literal] = [atom, Comparison(Operator.EQ, time, term)]
        known.append(Comparison(Operator.NE, time, Constant(None, self.column.type.type)))
        times = context.name("times")
        value = column_of(replace(self.column, term=time, nullable=False), "value")
        if self.column.type == DAY or self.operator is Operator.EQ:
            #   times(x, time) :- source(x), time = f(x).       passes(x) :- times(x, time), bound(c), time <= c.
            context.declare(times, [column, value])
            context.define(times, (source, time), known)
            limit = context.fresh("bound")
            bounds = self._of_clock("bound", (value, self.bound))
            test = Comparison(self.operator, time, limit)
            context.define(name, (source,), [Atom(times, (source, time)), Atom(bounds, (limit,)), test])
            return Atom(name, (source,))
        context.declare(times, [column, value, _BUCKET])
        bucket = context.fresh("bucket")
        context.define(times, (source, time, bucket), [*known, Comparison(Operator.EQ, bucket, _bucket_of(time))])
        fine = self._of_clock("fine", (_BUCKET, _bucket_of(self.bound)))
        whole = self._whole(times)
        row = Atom(times, (source, time, bucket))
        context.define(name, (source,), [row, Atom(whole, (bucket,))])
        near: list[Literal] = [row, Atom(fine, (bucket,)), self.clock, Comparison(self.operator, time, self.bound)]
        context.define(name, (source,), near)
        return Atom(name, (source,))

    def _whole(self, times: str) -> str:
        """Define the relation of the buckets in which every time passes."""
        context = self.lower.context
        operator = _STRICT.get(self.operator, self.operator)
        fine = _bucket_of(self.bound)
        coarse = self._of_clock("coarse", (_BUCKET, _coarser(fine)))
        place = self._of_clock("place", (replace(_BUCKET, name="coarse"), _coarser(fine)), (_BUCKET, fine))
        source, time, small, large, limit = (context.fresh(one) for one in ("x", "time", "bucket", "bucket", "bound"))
        buckets, ahead, whole = (context.name(word) for word in ("buckets", "ahead", "whole"))
        context.declare(buckets, [_BUCKET, replace(_BUCKET, name="coarse")])
        row = Atom(times, (source, time, small))
        context.define(buckets, (small, large), [row, Comparison(Operator.EQ, large, _coarser(small))])
        both = Atom(buckets, (small, large))
        context.declare(ahead, [_BUCKET])
        context.define(ahead, (large,), [both, Atom(coarse, (limit,)), Comparison(operator, large, limit)])
        context.declare(whole, [_BUCKET])
        context.define(whole, (small,), [both, Atom(ahead, (large,))])
        context.define(whole, (small,), [both, Atom(place, (large, limit)), Comparison(operator, small, limit)])
        return whole

    def _of_clock(self, word: str, *columns: tuple[Column, Term]) -> str:
        """Define a relation with one row, which is computed from the time and changes less often."""
        context = self.lower.context
        name, values = context.name(word), [context.fresh(word) for _ in columns]
        context.declare(name, [column for column, _ in columns])
        computed = [Comparison(Operator.EQ, value, term) for value, (_, term) in zip(values, columns, strict=True)]
        context.define(name, values, [self.clock, *computed])
        return name


def _bucket_of(time: Term) -> Call:
    return _shifted(Call("unix_micros", (time,), gives=NUMBER), _FINE_BITS)


def _coarser(bucket: Term) -> Call:
    return _shifted(bucket, _COARSE_BITS)


def _shifted(number: Term, bits: int) -> Call:
    return Call("shiftright", (number, Constant(bits, NUMBER), Constant(64, NUMBER)), gives=NUMBER)
