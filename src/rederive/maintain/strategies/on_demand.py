"""SJ96, Algorithms 2 and 3: rederivation on demand. Nothing is stored; the old state is derived where a rule reads it.

The maintenance rules are those of Algorithm 1 (`materialized`), in the same phases. Bindings pass from the changed literal to the
others, and every literal over a view requests the rows that it reads (`passes.magic_sets`):

    (Di)  m_rj :- ri^del, r(i+1), ....         p^del :- ri^del, r1, ..., rn.
    (R)   m_rj :- p^del, r1^new, ....          p^red :- p^del, r1^new, ..., rn^new.
    (Ii)  m_rj :- ri^ins, r(i+1)^new, ....     p^ins :- ri^ins, r1^new, ..., rn^new.
    (E1)  m_p :- p^ins.                        p^plus :- p^ins, !p.

The paper stores what a rule has joined before a request as a supplementary relation. An engine holds it in its loops, or in a
plan, and looks up the rows that it requests: the lookup is the magic rule.
"""

from __future__ import annotations

from dataclasses import replace

from rederive.analysis.graph import Component
from rederive.ir.rules import Program
from rederive.maintain.program import Section, Strategy
from rederive.maintain.strategies.materialized import materialized


def on_demand(component: Component, program: Program) -> Section:
    """Algorithm 1's phases over a view that is not stored."""
    reason = "nothing is stored: the old state is derived where rules read it"
    # No initial phase: no table has to be filled. The law of the new state stays, over an old state that is derived.
    return replace(materialized(component, program, proves=False), strategy=Strategy.ON_DEMAND, reason=reason, initial=())
