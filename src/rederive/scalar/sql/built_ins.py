"""All built-in functions of Spark whose arguments have fixed types, by name. `lang.sql.functions` says how calls are lowered."""

from __future__ import annotations

from typing import Final

from rederive.scalar.sql.arrays import ARRAYS
from rederive.scalar.sql.binaries import BINARIES
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.calendar_steps import STEPS
from rederive.scalar.sql.casts import FLOATS
from rederive.scalar.sql.checks import CHECKS
from rederive.scalar.sql.csv_values import CSV_VALUES
from rederive.scalar.sql.dates import DATES
from rederive.scalar.sql.format_string import FORMATS
from rederive.scalar.sql.hashes import HASHES
from rederive.scalar.sql.higher_order import HIGHER_ORDER
from rederive.scalar.sql.interval_values import INTERVALS
from rederive.scalar.sql.json_paths import JSON
from rederive.scalar.sql.json_values import JSON_VALUES
from rederive.scalar.sql.maps import MAPS
from rederive.scalar.sql.mathematics import MATHEMATICS
from rederive.scalar.sql.number_formats import NUMBER_FORMATS
from rederive.scalar.sql.numbers import BITS
from rederive.scalar.sql.patterns import PATTERNS
from rederive.scalar.sql.text import TEXT

_ALL: Final = (
    *TEXT, *PATTERNS, *HASHES, *MATHEMATICS, *BITS, *DATES, *STEPS, *FORMATS, *ARRAYS, *MAPS, *HIGHER_ORDER, *JSON, *JSON_VALUES,
    *CSV_VALUES, *BINARIES, *INTERVALS, *CHECKS, *FLOATS, *NUMBER_FORMATS,
)  # fmt: skip
BUILT_INS: Final[dict[str, BuiltIn]] = {found.name: found for found in _ALL}
