"""Languages: text becomes `ir.Program`. Datalog so far."""

from rederive.lang.datalog.compiler import compile_program, compile_query

__all__ = ["compile_program", "compile_query"]
