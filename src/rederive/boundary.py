"""The boundary between rederive and its callers: only errors of `rederive.errors` pass it.

Any other exception is a bug of ours. It becomes `Internal`, with the original as its cause. Three kinds of exceptions pass
unchanged: interrupts and exits, the end of an iteration, and what the caller's own code raises (callbacks, generators of rows,
readers of sources).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from os import PathLike, environ
from traceback import walk_tb
from types import AsyncGeneratorType, FunctionType, GeneratorType
from typing import Any, Final, NoReturn, TypeVar, cast

from rederive.errors import Internal, LimitExceeded, MissingDependency, RederiveError, TooDeep, WrongArgument, WrongRows, shorten

DEBUG: Final = "REDERIVE_DEBUG"
_MARK: Final = "_rederive_caller"

# Which extra of pyproject.toml brings a package. What is not listed here is installed with rederive itself.
_EXTRAS: Final = {
    "delta": "spark",
    "httpx": "client",
    "httptools": "service",
    "netron": "service",
    "pandas": "pandas",
    "polars": "polars",
    "prometheus_client": "service",
    "py4j": "spark",
    "pyspark": "spark",
    "starlette": "service",
    "uvicorn": "service",
    "uvloop": "service",
    "websockets": "service",
}

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


class Signal(Exception):
    """An exception that public methods raise and catch among themselves; it passes the boundary between them."""


_PASSES: Final = (RederiveError, Signal, StopIteration, StopAsyncIteration)


def is_debugging() -> bool:
    """Tell whether the traceback of an error is to be shown."""
    return environ.get(DEBUG, "") not in ("", "0")


def to_public_error(error: Exception) -> Exception:
    """Return the error that the caller sees for an exception.

    >>> to_public_error(KeyError("x")).code
    'internal'
    >>> print(to_public_error(ModuleNotFoundError(name="pyspark.sql")))
    error[missing_dependency]: the Python package 'pyspark' is missing
      help: pip install 'rederive[spark]'
    """
    if isinstance(error, _PASSES) or getattr(error, _MARK, False):
        return error
    if isinstance(error, RecursionError):
        return TooDeep()
    if isinstance(error, ImportError) and (missing := (error.name or "").partition(".")[0]) in _EXTRAS:
        extra = _EXTRAS[missing]
        return MissingDependency(f"the Python package '{missing}' is missing", hint=f"pip install 'rederive[{extra}]'")
    if isinstance(error, MemoryError):
        return LimitExceeded("the process is out of memory", hint="use less data, or give the process more memory")
    # Raised by a Python worker of Spark, and reported as text by the JVM.
    if "No module named 'rederive'" in str(error):
        return MissingDependency(
            "the Python workers of Spark do not have rederive",
            hint=f"set PYSPARK_PYTHON={sys.executable} before Spark starts, or install rederive where the executors run",
        )
    return Internal(error)


@contextmanager
def boundary() -> Iterator[None]:
    """Turn exceptions of the block into public errors."""
    try:
        yield
    except Exception as error:
        _raise(error)


def _raise(error: Exception) -> NoReturn:
    ours = to_public_error(error)
    if ours is error:
        raise error
    raise ours from error


# The caller's own code


def mark_as_callers(error: Exception) -> Exception:
    """Mark an exception as raised by the caller's own code, so that it passes the boundary unchanged. Return it."""
    if not isinstance(error, RederiveError):
        setattr(error, _MARK, True)
    return error


def caller_function(function: F) -> F:
    """Wrap a function of the caller, so that its exceptions pass the boundary unchanged."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except Exception as error:
            raise mark_as_callers(error) from error.__cause__

    return cast(F, call)


def given_rows(rows: Iterable[T]) -> Iterator[T]:
    """Iterate over rows of the caller; the exceptions of their generator pass the boundary unchanged.

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
        raise mark_as_callers(error) from error.__cause__


# Functions and classes


def guard(function: F) -> F:
    """Put a public function behind the boundary: check arguments of plain types, and raise public errors only."""
    # The signature is read once, when the function is defined.
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
        # The body of a generator runs after this call has returned, so its errors are turned where it is consumed.
        if isinstance(found, GeneratorType):
            return _guard_generator(found)
        return _guard_async_generator(found) if isinstance(found, AsyncGeneratorType) else found

    return cast(F, call)


def guard_class(cls: C) -> C:
    """Put the public methods and properties of a class behind the boundary."""
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
    """Raise the public error of a failed call.

    A TypeError without a frame of the function means that the arguments do not fit its signature: the caller's mistake.
    """
    if isinstance(error, TypeError) and not isinstance(error, RederiveError):
        code = getattr(inspect.unwrap(function), "__code__", None)
        if all(frame.f_code is not code for frame, _ in walk_tb(error.__traceback__)):
            raise WrongArgument(str(error)) from None
    _raise(error)


def _guard_generator(found: Generator[T, Any, Any]) -> Generator[T, Any, Any]:
    with boundary():
        return (yield from found)


async def _guard_async_generator(found: AsyncGenerator[T, Any]) -> AsyncGenerator[T, Any]:
    with boundary():
        try:
            async for one in found:
                yield one
        finally:
            await found.aclose()


# Arguments. A parameter is checked if the text of its annotation is a key of `_KINDS`.


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_integer(value: object) -> bool:
    # The integers of numpy have __index__ and are not of type int. In Python a bool is an int.
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return (hasattr(value, "__float__") or hasattr(value, "__index__")) and not isinstance(value, bool)


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _has_versions(value: object) -> bool:
    return isinstance(value, Mapping) and all(_is_text(name) and _is_integer(version) for name, version in value.items())


def _is_path(value: object) -> bool:
    return isinstance(value, str | PathLike)


_KINDS: Final[dict[str, tuple[Callable[[object], bool], str]]] = {
    "str": (_is_text, "a string"),
    "int": (_is_integer, "an integer"),
    "float": (_is_number, "a number"),
    "bool": (_is_boolean, "True or False"),
    "Mapping[str, Value]": (_is_mapping, "a mapping from columns to values"),
    "Mapping[str, int]": (_has_versions, "a mapping from tables to versions"),
    "str | Path": (_is_path, "a path"),
    "Path": (_is_path, "a path"),
    "Callback": (callable, "a function"),
    "_F": (callable, "a function"),
}
_Plain = tuple[int | None, str, bool, Callable[[object], bool], str]


def _plain_parameters(function: Callable[..., Any]) -> tuple[_Plain, ...]:
    """Return each checked parameter: position (None if keyword-only), name, whether it accepts None, the check, its text."""
    found: list[_Plain] = []
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        written = str(parameter.annotation)
        kind = written.removesuffix(" | None")
        if kind in _KINDS and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            index = None if parameter.kind is parameter.KEYWORD_ONLY else position
            found.append((index, parameter.name, kind != written, *_KINDS[kind]))
    return tuple(found)


def _check(plain: tuple[_Plain, ...], args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    for position, name, accepts_none, is_valid, what in plain:
        if position is not None and position < len(args):
            value = args[position]
        elif name in options:
            value = options[name]
        else:
            continue
        if not (is_valid(value) or (accepts_none and value is None)):
            raise WrongArgument(f"'{name}' must be {what}, not {shorten(value)}")
