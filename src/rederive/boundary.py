"""The boundary: nothing but an error of `rederive.errors` reaches whoever calls the API, the command line or the service.

Whatever else escapes is a bug of ours. It becomes `Internal`, with the original as its cause. Three kinds of exception pass as
they are: interrupts and exits, the end of an iteration, and what the caller's own code raised (callbacks, generators of rows,
readers).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from os import PathLike, environ
from traceback import walk_tb
from types import AsyncGeneratorType, FunctionType, GeneratorType
from typing import Any, Final, NoReturn, TypeVar, cast

from rederive.errors import Internal, LimitExceeded, RederiveError, TooDeep, WrongArgument, WrongRows, shorten

DEBUG: Final = "REDERIVE_DEBUG"
_MARK: Final = "_rederive_caller"

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


class Signal(Exception):
    """What public methods raise for each other and catch themselves: it passes the boundary between them."""


_PASSES: Final = (RederiveError, Signal, StopIteration, StopAsyncIteration)


def is_debugging() -> bool:
    """Whether the traceback of an internal error is to be shown."""
    return environ.get(DEBUG, "") not in ("", "0")


def as_ours(error: Exception) -> Exception:
    """The error that a caller sees in place of this one.

    >>> as_ours(KeyError("x")).code
    'internal'
    """
    if isinstance(error, _PASSES) or getattr(error, _MARK, False):
        return error
    if isinstance(error, RecursionError):
        return TooDeep()
    if isinstance(error, MemoryError):
        return LimitExceeded("the process has no memory left for this", hint="ask for less, or give it more")
    return Internal(error)


@contextmanager
def boundary() -> Iterator[None]:
    """What is raised inside leaves as an error of ours."""
    try:
        yield
    except Exception as error:
        _raise(error)


def _raise(error: Exception) -> NoReturn:
    ours = as_ours(error)
    if ours is error:
        raise error
    raise ours from error


# The caller's own code


def of_caller(error: Exception) -> Exception:
    """The same error, marked as raised by the caller's own code: it passes the boundary as it is."""
    if not isinstance(error, RederiveError):
        setattr(error, _MARK, True)
    return error


def caller_function(function: F) -> F:
    """A function of the caller's, whose errors pass the boundary as they are."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except Exception as error:
            raise of_caller(error) from error.__cause__

    return cast(F, call)


def given_rows(rows: Iterable[T]) -> Iterator[T]:
    """Rows that the caller hands in; what their generator raises is the caller's own.

    >>> list(given_rows([(1,), (2,)]))
    [(1,), (2,)]
    """
    if isinstance(rows, str | bytes | Mapping):
        raise WrongRows(rows)
    try:
        iterator = iter(rows)
    except TypeError:
        raise WrongRows(rows) from None
    try:
        yield from iterator
    except Exception as error:
        raise of_caller(error) from error.__cause__


# Functions and classes


def guard(function: F) -> F:
    """A public function, behind the boundary: arguments of plain types are checked, and what escapes is an error of ours."""
    plain = _plain_parameters(function)
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def answer(*args: Any, **options: Any) -> Any:
            _check(plain, args, options)
            try:
                return await function(*args, **options)
            except Exception as error:
                _raise_from_call(error, function)

        return cast(F, answer)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        _check(plain, args, options)
        try:
            found = function(*args, **options)
        except Exception as error:
            _raise_from_call(error, function)
        if isinstance(found, GeneratorType):
            return _generated(found)
        return _generated_async(found) if isinstance(found, AsyncGeneratorType) else found

    return cast(F, call)


def guard_class(cls: C) -> C:
    """A public class: `guard` for each of its public methods and properties."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name not in _SPECIAL:
            continue
        if isinstance(member, FunctionType) and not hasattr(member, "__isabstractmethod__"):
            setattr(cls, name, guard(member))
        elif isinstance(member, property) and member.fget is not None and not member.__isabstractmethod__:
            setattr(cls, name, property(guard(member.fget), member.fset, member.fdel, member.__doc__))
    return cls


_SPECIAL: Final = (
    "__init__",
    "__enter__",
    "__exit__",
    "__aenter__",
    "__aexit__",
    "__iter__",
    "__next__",
    "__aiter__",
    "__anext__",
)


def _raise_from_call(error: Exception, function: Callable[..., Any]) -> NoReturn:
    """A call that does not fit the signature is the caller's mistake: Python raises it before anything of the function runs."""
    if isinstance(error, TypeError) and not isinstance(error, RederiveError):
        code = getattr(inspect.unwrap(function), "__code__", None)
        if all(frame.f_code is not code for frame, _ in walk_tb(error.__traceback__)):
            raise WrongArgument(str(error)) from None
    _raise(error)


def _generated(found: Generator[T, Any, Any]) -> Generator[T, Any, Any]:
    with boundary():
        return (yield from found)


async def _generated_async(found: AsyncGenerator[T, Any]) -> AsyncGenerator[T, Any]:
    with boundary():
        try:
            async for one in found:
                yield one
        finally:
            await found.aclose()


# Arguments. A parameter is checked where its annotation is one of these, as it is written.


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return (hasattr(value, "__float__") or hasattr(value, "__index__")) and not isinstance(value, bool)


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _is_path(value: object) -> bool:
    return isinstance(value, str | PathLike)


_KINDS: Final[dict[str, tuple[Callable[[object], bool], str]]] = {
    "str": (_is_text, "a text"),
    "int": (_is_whole, "a whole number"),
    "float": (_is_number, "a number"),
    "bool": (_is_truth, "True or False"),
    "str | Path": (_is_path, "a path"),
    "Path": (_is_path, "a path"),
    "Callback": (callable, "a function"),
    "_F": (callable, "a function"),
}
_Plain = tuple[int | None, str, bool, Callable[[object], bool], str]


def _plain_parameters(function: Callable[..., Any]) -> tuple[_Plain, ...]:
    """Position (None: by name alone), name, whether None is taken, and what a value must be."""
    found: list[_Plain] = []
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        written = str(parameter.annotation)
        kind = written.removesuffix(" | None")
        if kind in _KINDS and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            index = None if parameter.kind is parameter.KEYWORD_ONLY else position
            found.append((index, parameter.name, kind != written, *_KINDS[kind]))
    return tuple(found)


def _check(plain: tuple[_Plain, ...], args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    for position, name, may_miss, is_right, what in plain:
        if position is not None and position < len(args):
            value = args[position]
        elif name in options:
            value = options[name]
        else:
            continue
        if not (is_right(value) or (may_miss and value is None)):
            raise WrongArgument(f"'{name}' must be {what}, not {shorten(value)}")
