"""Rewritings of a program, each `Program -> Program`."""
