"""The table of Spark's functions that expressions can call. `docs/sql.md` lists it, and a test compares both.

A function whose arguments have fixed types is an entry of `scalar.sql.built_ins`: name, signature, NULL rule, error rule and what
it computes. The Spark engine runs the same computation in its Python workers. The other functions are lowered here.
"""

from __future__ import annotations

from typing import Final

from rederive.lang.sql.array_functions import ARRAY_FUNCTIONS
from rederive.lang.sql.binary_functions import binary_functions
from rederive.lang.sql.choice_functions import CHOICES
from rederive.lang.sql.csv_functions import CSV_FUNCTIONS
from rederive.lang.sql.date_functions import DATE_FUNCTIONS, window_moment, window_start
from rederive.lang.sql.invocation import SqlFunction
from rederive.lang.sql.json_functions import JSON_FUNCTIONS
from rederive.lang.sql.lambda_functions import LAMBDA_FUNCTIONS
from rederive.lang.sql.map_functions import MAP_FUNCTIONS
from rederive.lang.sql.number_functions import NUMBER_FUNCTIONS
from rederive.lang.sql.plain_functions import plain_function, try_function
from rederive.lang.sql.text_functions import TEXT_FUNCTIONS, TRIM_SYNTAX
from rederive.scalar.sql.built_ins import BUILT_INS

# Scalar functions that only lowering calls: Spark has no function of the name, or another one.
_INTERNAL: Final = frozenset({
    "window_start", "subscript", "array_reverse",
    "&", "|", "^", "~", "add_days", "add_seconds", "add_micros", "hex_of_number", "hex_of_text", "parse_timestamp", "yearofweek",
    "second_with_fraction", "decode_bytes", "shortest", "json_field", "time_sequence", "array_concat",
})  # fmt: skip
_ALIASES: Final = {
    "char_length": "length",
    "date_diff": "datediff",
    "dateadd": "date_add",
    "datepart": "date_part",
    "nvl": "ifnull",
    "ceiling": "ceil",
    "getbit": "bit_get",
    "printf": "format_string",
    "reduce": "aggregate",
    "to_varchar": "to_char",
}
# Their types follow from the arguments.
NESTED: Final = {**ARRAY_FUNCTIONS, **MAP_FUNCTIONS, **LAMBDA_FUNCTIONS, **JSON_FUNCTIONS, **CSV_FUNCTIONS}
_TEXTS: Final[dict[str, SqlFunction]] = {
    **{name: plain_function(found) for name, found in BUILT_INS.items() if name not in (*_INTERNAL, *NESTED) and " " not in name},
    **NESTED,
    "try_url_decode": try_function(BUILT_INS["url_decode"]),
    "try_parse_url": try_function(BUILT_INS["parse_url"]),
    "try_to_binary": try_function(BUILT_INS["to_binary"]),
    **TEXT_FUNCTIONS,
    "trim_syntax": TRIM_SYNTAX,
    **NUMBER_FUNCTIONS,
    **DATE_FUNCTIONS,
    **CHOICES,
}
_OWN: Final[dict[str, SqlFunction]] = {**_TEXTS, **binary_functions(_TEXTS)}
ALIASES: Final[dict[str, str]] = {
    **{alias: name for name, found in BUILT_INS.items() for alias in found.aliases if name not in _INTERNAL},
    **_ALIASES,
}
"""Other names of functions, and the name in the table."""
FUNCTIONS: Final[dict[str, SqlFunction]] = {**_OWN, **{alias: _OWN[name] for alias, name in ALIASES.items()}}
WRITTEN_BY_REWRITINGS: Final[dict[str, SqlFunction]] = {
    "window start": SqlFunction(3, 3, window_start),
    "window moment": SqlFunction(1, 1, window_moment),
    **{name: plain_function(BUILT_INS[name]) for name in ("interval micros", "interval of micros")},
}
"""Functions that no text can call, because their names hold a space."""
