"""Self-maintainability (HU97): can a stored view be maintained from the stored views and the update alone?

| module | HU97 |
|---|---|
| `conjunctive` | the classes of views: without projection, with projection (6.1), unions (6.2) |
| `source_update` | the update U, and what else is known: partial copies (6.3), relations that are read (7) |
| `canonical` | the canonical database and the maintenance queries (Definition 3.1, Algorithm 3.1) |
| `reduction` | self-maintainability as containment of DIFF in INCON (Theorem 5.1, Table 2) |
| `compiled_maintenance` | the compiled test (Algorithm 5.1, Appendix A) |
| `search`, `search_conditions`, `facts` | the bounded search for views with projections, unions and conditions (section 6) |
| `advice` | what is known before any data: `rederive advise` |

A wrong "yes" would store wrong rows, so every approximation here may only turn a "yes" into a "no" or "unknown".
"""
