"""The languages, Datalog and SQL: text becomes `ir.rules.Program`."""

from rederive.lang.datalog.compiler import compile_program, compile_query

__all__ = ["compile_program", "compile_query"]
