"""Datalog: text to rules."""
