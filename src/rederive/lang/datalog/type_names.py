"""The names of types: the primitive types of Datalog and those that `.type` defines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rederive.errors import Redefined, TypeClash, UnknownName
from rederive.ir.terms import Kind, Type
from rederive.lang.datalog.syntax import TypeDefinition, TypeName
from rederive.values import MAX_PRECISION

_PRIMITIVES: Final = {kind.value: Type(kind) for kind in Kind if kind is not Kind.DECIMAL}


class TypeNames:
    """The types that a text can name: the primitive types and those of `.type`, each of which means a primitive type."""

    def __init__(self, definitions: Iterable[TypeDefinition]) -> None:
        self._definitions: dict[str, TypeDefinition] = {}
        self._redefinitions: list[TypeDefinition] = []
        for definition in definitions:
            # The first definition counts, so that one error is reported and not one for each use.
            if self._definitions.setdefault(definition.name.text, definition) is not definition:
                self._redefinitions.append(definition)

    def check(self, definition: TypeDefinition) -> None:
        """Refuse a definition that redefines a type, refers to itself, or unites different types."""
        name = definition.name
        if (
            any(definition is other for other in self._redefinitions)
            or name.text in _PRIMITIVES
            or name.text == Kind.DECIMAL.value
        ):
            raise Redefined(f"type '{name.text}' is defined already", name.span)
        self._defined(definition, ())

    def resolve(self, name: TypeName, path: tuple[str, ...] = ()) -> Type:
        """The primitive type that a name means; `path` are the definitions that led to the name."""
        if name.name == Kind.DECIMAL.value:
            return _decimal(name)
        if name.parameters:
            raise TypeClash(
                f"type '{name.name}' has no precision", name.span, hint="omit it; only decimal has one, as in decimal(10,2)"
            )
        if name.name in _PRIMITIVES:
            return _PRIMITIVES[name.name]
        if name.name not in self._definitions:
            raise UnknownName("type", name.name, (*_PRIMITIVES, "decimal", *self._definitions), name.span)
        # `path` is short: a chain of definitions, each of which names the next.
        if name.name in path:
            raise Redefined(f"type '{name.name}' is defined by itself: {' -> '.join((*path, name.name))}", name.span)
        return self._defined(self._definitions[name.name], path)

    def _defined(self, definition: TypeDefinition, path: tuple[str, ...]) -> Type:
        # Subtypes and unions of Soufflé restrict nothing here: each means the one primitive type of its members.
        first, *others = definition.members
        type = self.resolve(first, (*path, definition.name.text))
        for other in others:
            if (found := self.resolve(other, (*path, definition.name.text))) != type:
                raise TypeClash(f"'{other.name}' is {found}, but '{first.name}' is {type}: a union has one type", other.span)
        return type


def _decimal(name: TypeName) -> Type:
    match name.parameters:
        case (precision, scale) if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return Type(Kind.DECIMAL, precision, scale)
        case _:
            raise TypeClash(
                f"'{name.span.text}' is not a decimal type",
                name.span,
                hint=f"write decimal(precision, scale), with a precision of 1 to {MAX_PRECISION} and a scale no greater",
            )
