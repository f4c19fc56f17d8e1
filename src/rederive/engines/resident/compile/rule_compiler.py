"""A rule becomes a Python function: loops over the outer variables, the innermost step as one bitmap operation.

For  closure(x, y) :- edge(x, z), closure(z, y)  started from a change of `closure` this writes

    def rule(key, leaf):                  # closure(z, y): all y of one z at once
        z = key
        found = lookup0(z)                # edge by its second column
        if found is not None:
            for x in found:
                into = get(x)             # what is pending for closure(x, _)
                if into is None: pending[x] = leaf.copy()
                else: into |= leaf

The *bulk* variable, y in this rule, is the head's last one: it is never looped over, its bitmaps are intersected, subtracted and
passed on whole. It can be one when every literal that holds it is an atom whose other variables the rest of the body binds.

A functor that fails may do so for a binding that a later literal rules out. The leaf is then joined again in a safe order, where
everything else comes first; what fails there has failed. What was found before is found again, which is the same to a set.

A variable that only joins two atoms is not looped over: their bitmaps must not be disjoint. How found rows are handed over:
`findings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import isinf
from types import CodeType
from typing import TypeAlias

from rederive.analysis.bindings import calls_functor
from rederive.engines.resident.compile.findings import Counts, FindingsText, Keys, Pending, Target
from rederive.engines.resident.compile.join_plan import Plan, plan_rule
from rederive.engines.resident.storage.codes import Codes
from rederive.engines.resident.storage.table import Readable, Table
from rederive.errors import EvaluationError, TooDeep, Unsupported
from rederive.ir.printing import show_rule
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Rule, literal_variables, read_by
from rederive.ir.terms import Call, Simple, Term, Type, Variable
from rederive.scalar.failures import ScalarError

Source: TypeAlias = Readable
Resolve: TypeAlias = Callable[[Atom], Source]
Function: TypeAlias = Callable[..., None]


def compile_rule(
    rule: Rule, driver: int | None, into: Target, resolve: Resolve, codes: Codes, types: Mapping[str, Type]
) -> Function:
    """A function of one leaf of the driver (key, bitmap), or of nothing where no driver is given."""
    safe: list[Function] = []

    # Compiled at the first failure: most functors never fail, and the safe order is the slower one.
    def again(*arguments: object) -> None:
        if not safe:
            safe.append(_Writer(rule, into, resolve, codes, types).write(driver))
        safe[0](*arguments)

    return _Writer(rule, into, resolve, codes, types).write(driver, again)


def function_text(rule: Rule, driver: int | None, into: Target, resolve: Resolve, codes: Codes, types: Mapping[str, Type]) -> str:
    """The text of the function that `compile_rule` makes, for tests and for people."""
    return _Writer(rule, into, resolve, codes, types).text(driver, lambda *arguments: None)


# 4,096 texts of about 1 KiB. Rules that differ in relations and constants only have one text: those are names of its scope.
@lru_cache(maxsize=4096)
def _byte_code(text: str) -> CodeType:
    return compile(text, "<rule>", "exec")


class _Writer(FindingsText):
    """Writes the text of one function and collects the objects it refers to: the joins of its body, literal by literal."""

    def __init__(self, rule: Rule, into: Target, resolve: Resolve, codes: Codes, types: Mapping[str, Type]) -> None:
        super().__init__(rule, into, codes, types)
        self.resolve = resolve
        # A variable that occurs once is not read: its column is not unpacked. A count has one entry for each binding of all
        # variables, so there every variable is used.
        occurrences = Counter(v.name for literal in (rule.head, *rule.body) for v in literal_variables(literal))
        counted = isinstance(into, Counts)
        self.used = {name for name, times in occurrences.items() if times > 1 or counted}
        self.waiting: list[Literal] = []
        self.probed_leaf = ""

    # The function as a whole

    def text(self, driver: int | None, again: Function | None = None) -> str:
        """The function's text. `again` is called where a functor fails; without it the order is safe and failures are raised."""
        self.codes.watch.check()
        plan = plan_rule(self.rule, driver, self._fanout, not isinstance(self.into, Counts), safe=again is None)
        arguments = ["key", "leaf"] if plan.start is not None else []
        arguments += ["times"] if isinstance(self.into, Counts) else []
        self.line(f"def rule({', '.join(arguments)}):")
        self.depth += 1
        calls = any(map(calls_functor, self.rule.body))
        # One `try` around the body: entering it costs nothing since Python 3.11. A leaf that fails is joined again as a whole.
        with self.block("try:") if calls else self.same_depth():
            self.body(plan)
        if calls and again is not None:
            self.line(f"except ScalarError: {self.name('again', again)}({', '.join(arguments)})")
        elif calls:
            self.line(f"except ScalarError as error: raise {self.name('failed', self.failed)}(error) from None")
        return "\n".join(self.lines)

    def write(self, driver: int | None, again: Function | None = None) -> Function:
        """The function itself: its text, run by Python."""
        text = self.text(driver, again)
        try:
            exec(_byte_code(text), self.scope)
        except SyntaxError as error:  # Python nests twenty loops and two hundred parentheses, and no more
            if "parentheses" in str(error.msg):
                raise TooDeep(span=self.rule.span) from None
            raise Unsupported(
                f"the rule joins too many relations: {error.msg}",
                self.rule.span,
                hint="join some of them in a view of their own",
            ) from None
        function: Function = self.scope["rule"]
        return function

    def enter(self, opening: str) -> None:
        super().enter(opening)
        if opening.startswith("for "):
            self.ask_watch()

    def ask_watch(self) -> None:
        """In each turn of a loop: whether the work is to stop."""
        watch = self.codes.watch
        self.line(f"if {self.name('late', watch.late)}: {self.name('stop', watch.stop)}()")

    def failed(self, error: ScalarError) -> EvaluationError:
        """The error with its rule and the place of the rule."""
        span = self.rule.span
        where = f"the rule {span}: {span.text}" if span else show_rule(self.rule)
        return error.kind(f"{error}, in {where}").of(read_by(self.rule))

    def body(self, plan: Plan) -> None:
        with self.same_depth():
            if plan.start is not None:
                self.row(plan.start, "key", "leaf", plan.bulk)
            # Where a leaf would flow is asked before there is a leaf: the bitmap's own literals are left out.
            tail = plan.tail if not isinstance(self.into, Keys) else ()
            # A leaf that is empty after a subtraction or an intersection of stored bitmaps starts no loop.
            early = dict.fromkeys(literal for literal in tail if self.leaf and self.cheap(literal, plan.bulk))
            for literal in early:
                self.narrow(literal, plan.bulk)
            self.fresh = False  # the loops below may hand it over more than once
            if plan.start is not None:
                self.mark(plan.bulk)
            # A test of a row's age costs more than a lookup that may rule the row out, and no loop depends on it: it comes last.
            self.waiting = sorted((step.literal for step in plan.steps), key=self.is_costly_test)
            tests: list[Literal] = []
            while self.waiting:
                if tail and self.is_costly_test(self.waiting[0]):
                    tests, self.waiting = self.waiting, []
                    break
                self.step(self.waiting.pop(0), plan.bulk)
                self.mark(plan.bulk)
            # All other variables are bound now, so each literal of the tail is one bitmap operation.
            for literal in tail:
                if literal not in early:
                    self.narrow(literal, plan.bulk)
            for literal in tests:
                self.step(literal, plan.bulk)
            if plan.meets is not None:
                self.meet(*plan.meets)
            self.emit(plan.bulk)

    def is_costly_test(self, literal: Literal) -> bool:
        """Whether a literal is only tested, row by row, and so can come after all others."""
        return isinstance(literal, Atom) and self.resolve(literal).lazy and hasattr(self.resolve(literal), "test")

    def cheap(self, literal: Literal, bulk: str | None) -> bool:
        """Whether the driver's leaf can be narrowed before anything else is joined, at no cost but a look at what is stored."""
        atom = literal.atom if isinstance(literal, Negation) else literal
        stored = not isinstance(atom, Atom) or not self.resolve(atom).lazy
        return stored and all(v.name == bulk or v.name in self.bound for v in literal_variables(literal))

    def _fanout(self, atom: Atom, bound: tuple[int, ...]) -> float:
        return self.resolve(atom).fanout(bound)

    # Literals

    def step(self, literal: Literal, bulk: str | None) -> None:
        match literal:
            case Atom():
                self.atom(literal, bulk)
            case Negation(atom):
                self.enter(f"if not ({self.holds(atom)}):")
            case Comparison():
                self.comparison(literal)

    def find(self, atom: Atom, bound: tuple[int, ...]) -> str:
        """Write the lookup of an atom by its bound columns; the name that holds what was found."""
        lookup = self.name("lookup", self.resolve(atom).lookup(bound))
        slots = self.slots(atom)
        found = f"found{len(self.lines)}"
        self.line(f"{found} = {lookup}({self.key([slots[i] for i in bound])})")
        return found

    def holds(self, atom: Atom) -> str:
        """Whether an atom holds, all of whose variables are bound; an expression."""
        source, slots = self.resolve(atom), self.slots(atom)
        if (test := getattr(source, "test", None)) is not None:
            return f"{self.name('test', test())}({self.key(slots[:-1]) if len(slots) > 1 else '()'}, {slots[-1]})"
        # A probe derives the one row; a lookup by the primary key would derive its whole leaf.
        if source.lazy:
            key = self.key(slots[:-1]) if len(slots) > 1 else "()"
            return f"{self.name('probe', source.probe())}({key}, BitMap(({slots[-1]},)))"
        found = self.find(atom, source.primary_columns)
        return f"{found} is not None and {slots[-1]} in {found}"

    def atom(self, atom: Atom, bulk: str | None) -> None:
        columns = len(atom.terms)
        bound = tuple(i for i, term in enumerate(atom.terms) if self.known(term))
        free = [i for i in range(columns) if i not in bound]
        source = self.resolve(atom)
        if not free:
            self.enter(f"if {self.holds(atom)}:")
        # No variable of the atom is read elsewhere: it holds where the relation has any row.
        elif not bound and not any(self.named(term) for term in atom.terms):
            self.enter(f"if {self.name('rows', source.primary if isinstance(source, Table) else source)}:")
        # Without a bound column the primary index is walked; its entries give all values of the last column at once.
        elif not bound and columns > 1:
            items = source.primary.items if isinstance(source, Table) else source.items
            key, leaf = f"key{len(self.lines)}", f"leaf{len(self.lines)}"
            self.enter(f"for {key}, {leaf} in {self.name('items', items)}():")
            self.row(atom, key, leaf, bulk)
        else:
            found = self.find(atom, bound)
            self.enter(f"if {found} is not None:")
            if len(free) == 1:
                found = self.intersect(atom.terms[free[0]], found, bulk)
            self.others(atom, free, found, bulk)

    def intersect(self, term: Simple, found: str, bulk: str | None) -> str:
        """Before a loop over one variable: the atoms that wait for this variable alone narrow its values first."""
        if not isinstance(term, Variable) or term.name == bulk or term.name not in self.used:
            return found
        # for x in r(a, x) & s(b, x): one bitmap operation instead of a loop over r with a test in s for each x.
        for literal in tuple(self.waiting):
            if not isinstance(literal, Atom) or literal.terms.count(term) != 1 or self.resolve(literal).lazy:
                continue
            known = self.without(literal, term.name)
            if all(other == term or self.known(other) for other in literal.terms) and not isinf(self._fanout(literal, known)):
                self.waiting.remove(literal)
                other = self.find(literal, known)
                self.enter(f"if {other} is not None:")
                narrowed = f"both{len(self.lines)}"
                self.line(f"{narrowed} = {found} & {other}")
                found = narrowed
        return found

    def row(self, atom: Atom, key: str, leaf: str, bulk: str | None) -> None:
        """Bind an atom's variables from one entry of its primary index."""
        if len(atom.terms) > 1:
            self.unpack(atom.terms[:-1], f"{{}} = {key}", loop=False)
        last = atom.terms[-1] if atom.terms else None
        if bulk is None or last != Variable(bulk):
            self.mark(bulk)
        self.last(last, leaf, bulk)

    def others(self, atom: Atom, free: list[int], found: str, bulk: str | None) -> None:
        """Bind an atom's free variables from what a lookup found."""
        if len(free) == 1:
            self.last(atom.terms[free[0]], found, bulk)
        elif any(self.named(atom.terms[i]) for i in free):
            self.unpack([atom.terms[i] for i in free], f"for {{}} in {found}:", loop=True)

    def named(self, term: Simple) -> bool:
        return isinstance(term, Variable) and term.name in self.used

    def unpack(self, terms: Sequence[Simple], pattern: str, *, loop: bool) -> None:
        """Take a key apart: new variables are named, the others compared."""
        names, tests = [], []
        for position, term in enumerate(terms):
            if isinstance(term, Variable) and term.name not in self.bound:
                names.append(self.local(term.name))
                self.bound.add(term.name)
            else:
                names.append(f"part{len(self.lines)}_{position}")
                tests.append(f"{names[-1]} == {self.slot(term)}")
        self.line(pattern.format(self.key(names)))
        self.depth += loop
        self.loops += loop
        if loop:
            self.ask_watch()
        if tests:
            self.enter(f"if {' and '.join(tests)}:")

    def last(self, term: Simple | None, leaf: str, bulk: str | None) -> None:
        """Bind the one column whose values a bitmap holds."""
        match term:
            case None:
                pass
            # The bitmap belongs to an index or to the driver: it may be read, copied and narrowed into new ones, never changed.
            case Variable(name) if name == bulk:
                self.leaf, self.fresh = leaf, False
                self.bound.add(name)
            case Variable(name) if name not in self.bound:
                if name in self.used:
                    self.enter(f"for {self.local(name)} in {leaf}:")
                self.bound.add(name)
            case _:
                self.enter(f"if {self.slot(term)} in {leaf}:")

    def narrow(self, literal: Literal, bulk: str | None) -> None:
        """Restrict the bulk variable's bitmap by one more literal."""
        assert bulk is not None
        match literal:
            # leaf - {code} for `y != code`.
            case Comparison(_, left, right):
                other = left if right == Variable(bulk) else right
                assert not isinstance(other, Call)
                slot = self.slot(other)
                self.leave_test()
                self.narrowed(f"{self.leaf} - BitMap(({slot},)) if {slot} in {self.leaf} else {self.leaf}")
            # leaf - r(key) for `!r(key, y)`.
            case Negation(atom):
                found = self.find(atom, self.without(atom, bulk))
                self.narrowed(f"{self.leaf} - {found} if {found} is not None else {self.leaf}")
            # A view derived on demand: only the rows of the leaf are requested, m_r(key, y) for each y in it.
            case Atom() if self.leaf and self.probed(literal, bulk):
                probe, slots = self.name("probe", self.resolve(literal).probe()), self.slots(literal)
                key = self.key(slots[:-1]) if len(slots) > 1 else "()"
                self.narrowed(f"{probe}({key}, {self.leaf})", fresh=True)
                self.probed_leaf = self.leaf
            # leaf & r(key) for `r(key, y)`; the first such atom gives the bitmap itself.
            case Atom():
                found = self.find(literal, self.without(literal, bulk))
                self.enter(f"if {found} is not None:")
                if not self.leaf:
                    self.leaf = found
                else:
                    self.narrowed(f"{self.leaf} & {found}", fresh=True)

    def probed(self, atom: Atom, bulk: str) -> bool:
        """Whether to look up an atom for the values in the bitmap alone, not for all values."""
        source = self.resolve(atom)
        # Rows that are tested by age are found for a part of a leaf sooner than for all of it.
        return (source.lazy or hasattr(source, "test")) and atom.terms[-1] == Variable(bulk)

    def narrowed(self, expression: str, *, fresh: bool = False) -> None:
        """Write the narrowed bitmap under a name of its own: the wider one serves the next turn of a loop around this."""
        self.leaf, self.fresh = f"leaf{len(self.lines)}", fresh or self.fresh
        self.line(f"{self.leaf} = {expression}")
        self.enter(f"if {self.leaf}:")

    def leave_test(self) -> None:
        """Before a test of the bitmap that is narrowed next: it is tested then. Python nests a hundred blocks, and no more."""
        test = "    " * (self.depth - 1) + f"if {self.leaf}:"
        # A probe that finds nothing returns None, which only its own test excludes.
        if self.leaf != self.probed_leaf and self.lines[-1] == test and (self.gather is None or self.gather[0] < len(self.lines)):
            self.lines.pop()
            self.depth -= 1

    @staticmethod
    def without(atom: Atom, variable: str) -> tuple[int, ...]:
        return tuple(i for i, term in enumerate(atom.terms) if term != Variable(variable))

    def comparison(self, comparison: Comparison) -> None:
        left, right = comparison.left, comparison.right
        if isinstance(left, Variable) and left.name not in self.bound:
            self.assign(left, right)
        elif isinstance(right, Variable) and right.name not in self.bound:
            self.assign(right, left)
        # For a count or a request, a failure leaves the binding out and is noted; whether it counts is decided later.
        elif self.lenient is not None:
            holds = f"holds{len(self.lines)}"
            self.attempt(f"{holds} = {self.test(comparison.operator, left, right)}", f"{holds} = False")
            self.enter(f"if {holds}:")
        else:
            self.enter(f"if {self.test(comparison.operator, left, right)}:")

    @property
    def lenient(self) -> list[ScalarError] | None:
        return self.into.failures if isinstance(self.into, Counts | Pending) else None

    def attempt(self, statement: str, otherwise: str) -> None:
        """Write a statement that may fail for a binding that holds in no state."""
        self.line(f"try: {statement}")
        self.line(f"except ScalarError as error: {self.name('failures', self.lenient)}.append(error); {otherwise}")

    def assign(self, variable: Variable, term: Term) -> None:
        if isinstance(term, Call):
            encode = self.name("encode", self.codes.codec(self.types[variable.name]).encode)
            statement = f"{self.local(variable.name)} = {encode}({self.value(term)})"
            if self.lenient is None:
                self.line(statement)
            else:
                self.attempt(statement, f"{self.local(variable.name)} = None")
                self.enter(f"if {self.local(variable.name)} is not None:")
        else:
            self.line(f"{self.local(variable.name)} = {self.slot(term)}")
        self.bound.add(variable.name)

    def meet(self, one: Atom, two: Atom) -> None:
        """The one variable that is left joins two atoms: some value of it must be in both."""
        (variable,) = (v for v in literal_variables(one) if v.name not in self.bound)
        # The stored side is looked up first: its values are then the probe into the side that is derived.
        if self.resolve(two).lazy and not self.resolve(one).lazy:
            one, two = two, one
        if self.resolve(one).lazy and not self.resolve(two).lazy and one.terms[-1] == variable:
            found, key = self.find(two, self.without(two, variable.name)), self.key(self.slots(one)[:-1])
            self.enter(f"if {found} is not None and {self.name('probe', self.resolve(one).probe())}({key}, {found}):")
            return
        first = self.find(one, self.without(one, variable.name))
        self.enter(f"if {first} is not None:")
        second = self.find(two, self.without(two, variable.name))
        # exists z: r(a, z), s(z, b). `isdisjoint` stops at the first common value and builds no bitmap.
        self.enter(f"if {second} is not None and not {first}.isdisjoint({second}):")
