"""Expressions over the columns of one table, where engines for SQL are known to differ."""

from __future__ import annotations

import datetime
from decimal import Decimal

from rederive.ir.terms import Row

TABLE = """CREATE TABLE r (k INT PRIMARY KEY, i INT, h SMALLINT, b BIGINT, d DECIMAL(10, 2), e DECIMAL(24, 6), f DOUBLE,
                           s STRING, day DATE, at TIMESTAMP, o BOOLEAN)"""
MOMENT = datetime.datetime(2024, 2, 29, 13, 14, 15, 678901)


def _row(k: int, i: int, b: int, d: str, f: float, s: str, day: str, h: int = 5, e: str = "1.000001", o: bool = True) -> Row:
    date = datetime.date.fromisoformat(day)
    at = datetime.datetime.combine(date, MOMENT.time())
    return (k, i, h, b, Decimal(d), Decimal(e), f, s, date, at, o)


ROWS: list[Row] = [
    _row(1, 7, 3, "1.25", 2.5, "Spark SQL", "2024-02-29"),
    _row(2, -7, 2, "-1.25", -2.5, "  padded ", "1999-12-31", -7, "-123456789012345678.123456", False),
    _row(3, 0, 0, "0.00", 0.0, "", "1970-01-01", 0, "0.000000"),
    (4, *[None] * 10),
    _row(5, 2147483647, 9223372036854775807, "99999999.99", 1e300, "12", "2400-12-31", 32767, "999999999999999999.999999"),
    _row(6, -2147483648, -9223372036854775808, "-99999999.99", -1e-300, "-1.5", "1900-03-01", -32768, "-0.000001", False),
    _row(7, 1, 10, "0.05", 0.5, "true", "2023-01-31", 1, "0.500000"),
    _row(8, 3, -3, "2.50", 1.5, "2024-02-30", "2024-12-30", 3, "2.500000"),
    _row(9, 4, 4, "3.49", -0.5, "2024-02-29", "2021-01-03", 4, "-2.500000"),
    _row(10, -1, 1, "-0.01", 3.0, "a%b_c\\d", "2020-12-31", -1, "12345.678900"),
    _row(11, 2, 7, "7.00", 1e-5, "é𝄞x", "2016-01-01", 2, "0.333333"),
]  # fmt: skip

ARITHMETIC = """
i + 1 | i - 1 | i * 2 | -i | abs(i) | i + h | h + h | h * h | -h | b + 1 | b - 1 | b * 2 | -b | abs(b) | i + b | i * b | i + f
i * f
i / 2 | i / b | 7 / i | b / 2 | i div 2 | b div i | i div b | i % 3 | -7 % i | b % i | i % b | f % 2 | d % 3 | mod(i, 4)
f / 2 | f / i | d / i | d / f
d + 1 | d - 1 | d + d | d - e | d * d | d * e | e * e | d / d | d / 3 | e / d | e / 7 | d / e | d * 1.5 | d * i | d + i
d + b | d * b | d / b | e * 3 | -d
e + e | e - 0.1 | d + f | d * 2.0E0 | d + 0.001 | d % d | e % 0.7 | i * 1.1 | h / 3 | 1 / 3 | 1.0 / 3 | 2 / 3.00
CAST(1 AS DECIMAL(38, 10)) / 3
"""
ROUNDING = """
round(f) | round(d) | round(d, 1) | round(d, 0) | round(e, 2) | round(e, 5) | round(f, 1) | round(i, -1) | round(2.5)
round(-2.5) | round(d, -1) | round(i)
floor(f) | floor(d) | floor(e) | ceil(f) | ceil(d) | ceil(e) | floor(i) | ceiling(d) | sign(i) | sign(d) | sign(f)
sqrt(abs(i)) | power(i, 2) | exp(f / 100)
greatest(i, b) | least(i, h) | greatest(d, e) | least(f, i) | greatest(s, 'b') | nullif(i, 7) | nullif(d, 1.25)
coalesce(i, b) | coalesce(d, e) | coalesce(NULL, f)
"""
CASTS = """
CAST(s AS INT) | CAST(s AS BIGINT) | CAST(s AS DOUBLE) | CAST(s AS DECIMAL(10, 2)) | CAST(s AS DECIMAL(3, 1))
CAST(s AS BOOLEAN) | CAST(s AS DATE)
CAST(i AS STRING) | CAST(b AS INT) | CAST(i AS SMALLINT) | CAST(i AS TINYINT) | CAST(b AS DOUBLE) | CAST(i AS DECIMAL(5, 2))
CAST(b AS DECIMAL(20, 0)) | CAST(i AS BOOLEAN)
CAST(d AS INT) | CAST(d AS STRING) | CAST(d AS DOUBLE) | CAST(d AS DECIMAL(4, 1)) | CAST(e AS DECIMAL(10, 2))
CAST(e AS STRING) | CAST(e AS BIGINT) | CAST(d AS BOOLEAN)
CAST(f AS INT) | CAST(f AS BIGINT) | CAST(f AS STRING) | CAST(f AS DECIMAL(10, 3)) | CAST(f AS BOOLEAN) | CAST(o AS INT)
CAST(o AS STRING) | CAST(o AS DOUBLE)
CAST(day AS STRING) | CAST(at AS DATE) | CAST(day AS TIMESTAMP) | CAST(at AS STRING) | TRY_CAST(s AS INT)
TRY_CAST(s AS DATE) | TRY_CAST(i AS TINYINT) | TRY_CAST(f AS INT)
TRY_CAST(s AS DECIMAL(10, 2)) | TRY_CAST(s AS BOOLEAN) | TRY_CAST(s AS DOUBLE) | CAST('  12 ' AS INT) | CAST('1e2' AS DOUBLE)
CAST('0x1' AS INT) | CAST('+5' AS INT)
CAST('12.7' AS INT) | CAST('1e2' AS DECIMAL(10, 2)) | CAST(' 2024-1-5 ' AS DATE) | CAST('2024-01-05 10:00:00' AS DATE)
CAST('2024-7' AS DATE) | CAST('t' AS BOOLEAN) | CAST('YES' AS BOOLEAN)
"""
LOGIC = """
i = b | i = d | d = f | i <> b | i < b | d <= e | s < 'b' | s = 'true' | o = true | i <=> b | s <=> NULL | o AND i > 0
o OR i > 0 | NOT o | o AND NULL | NULL OR i > 0
i BETWEEN 0 AND 5 | i NOT BETWEEN b AND 5 | i IN (1, 7, NULL) | i NOT IN (1, 7) | i NOT IN (1, NULL) | s IN ('12', '')
i IS NULL | s IS NOT NULL | day > DATE'2000-01-01'
CASE WHEN i > 0 THEN 'pos' WHEN i < 0 THEN 'neg' END | CASE i WHEN 7 THEN 1 WHEN 0 THEN 2.5 ELSE b END
CASE WHEN i <> 0 THEN 7 / i ELSE 0 END | if(o, i, b)
coalesce(i, 1 / 0) | i <> 0 AND 7 / i > 1 | i = 0 OR 7 / i > 1 | at > day | day = CAST(at AS DATE) | s = 12 | f = i
isnull(i) | isnotnull(d) | nvl(i, 0) | ifnull(s, '?')
o = false | false = o | (i = 1) = false | false <> (i = 1) | coalesce(o, false) = false | o < true | o IN (false) | o IS NOT FALSE
"""
TEXTS = """
length(s) | upper(s) | lower(s) | s || '!' | concat(s, i) | concat(s, NULL) | concat('a', 'b') | concat_ws('-', s, NULL, 'x')
concat_ws(NULL, s, 'x') | reverse(s) | repeat(s, 2) | repeat(s, k - 3)
substring(s, 2) | substring(s, 2, 3) | substring(s, 0, 2) | substring(s, -3) | substring(s, -3, 2) | substring(s, -20, 18)
substring(s, 3, -1) | substring(s, i) | substr(s, -2, 5) | left(s, 2) | right(s, 3)
left(s, -1) | right(s, 0) | left(s, i) | trim(s) | ltrim(s) | rtrim(s) | trim('\\t x ') | lpad(s, 5, '*') | rpad(s, 5, 'ab')
lpad(s, 2, '*') | lpad(s, 12, '') | rpad(s, -1, 'x') | lpad(s, 4)
replace(s, 'a', 'A') | replace(s, '', 'x') | replace(s, 'a') | instr(s, 'a') | instr(s, '') | instr(s, 'zz')
startswith(s, 'S') | endswith(s, '') | contains(s, 'a') | s LIKE 'S%'
s LIKE '%a%' | s LIKE '_' | s LIKE '' | s LIKE 'a\\\\%b%' | s LIKE '%\\\\_c%' | s LIKE '%\\\\\\\\d' | s NOT LIKE '%a%'
s NOT ILIKE 'SPARK%' | s NOT RLIKE 'a' | regexp_like(s, 'a') | regexp(s, 'a') | like(s, 'S%') | len(s) | char_length(s)
locate('a', s) | position('a' IN s) | position('a', s) | substring(s FROM 2 FOR 3) | trim(LEADING FROM s) | concat() | concat(s)
CAST(s AS VARCHAR(2)) | CAST(s AS CHAR(2)) | string(i) | int('12') | decimal('12.5') | mod(i, 4) | div(i, 4) | s LIKE lower(s)
s RLIKE '^[0-9]+$' | s RLIKE 'a.b' | s ILIKE 'SPARK%' | length(s || s) | '' = s
"""
TIMES = """
year(day) | month(day) | day(day) | quarter(day) | dayofweek(day) | dayofyear(day) | weekofyear(day) | hour(at) | minute(at)
second(at) | year(at) | extract(year FROM day)
date_add(day, 31) | date_add(day, -1) | date_sub(day, 60) | date_add(day, h) | add_months(day, 1) | add_months(day, -13)
datediff(day, DATE'2020-02-29') | last_day(day) | day + INTERVAL 1 MONTH
day - INTERVAL 1 YEAR | day + INTERVAL 5 DAY | at + INTERVAL 90 MINUTES | at - INTERVAL 1 DAY | at + INTERVAL 1 MONTH
trunc(day, 'MM') | trunc(day, 'YEAR') | trunc(day, 'QUARTER') | trunc(day, 'WEEK')
trunc(day, 'nonsense') | date_trunc('HOUR', at) | date_trunc('DAY', at) | date_trunc('MONTH', at) | date_trunc('WEEK', at)
trunc(day, 'Q') | trunc(day, 'q') | trunc(day, 'DAY') | trunc(day, 'HOUR') | trunc(day, 'yy') | trunc(day, 'mon')
trunc(at, 'MM')
date_trunc('MILLISECOND', at) | date_trunc('microsecond', at) | date_trunc('Q', at) | date_trunc('QUARTER', at)
date_trunc('second', at) | date_trunc('MINUTE', at) | date_trunc('DD', at) | date_trunc('HH', at) | date_trunc('YY', at)
date_trunc('DAY', day) | date_trunc(NULL, at) | date_diff(day, DATE'2020-02-29') | dateadd(day, 31) | date_add(day, '7')
extract(HOUR FROM at) | extract(quarter FROM day) | extract(day FROM at) | to_timestamp('2024-03-01 10:11:12') | timestamp(day)
to_date(s) | to_date('2024-03-01') | date(at) | day + 1 | datediff(at, day)
"""
ORDERS = """
i | i DESC | s | s DESC | s NULLS LAST | s DESC NULLS FIRST | d DESC NULLS LAST | f | o | o DESC | day DESC | at NULLS LAST
e | b DESC | h NULLS LAST | length(s) | i % 2 DESC
"""
AGGREGATES = """
count(*) | count(i) | sum(h) | sum(d) | sum(e) | avg(i) | avg(d) | avg(e) | avg(h) | min(d) | max(s) | min(day) | max(at)
bool_and(o) | bool_or(o) | count_if(i > 0) | count(DISTINCT o) | avg(DISTINCT h)
sum(i) | sum(DISTINCT h) | min(f) | max(f) | min(o) | count(DISTINCT d) | sum(h) FILTER (WHERE i > 0) | avg(d) * 2
sum(d) / count(*) | max(length(s)) | sum(CASE WHEN o THEN 1 ELSE 0 END) | min(s)
"""
GROUPS = {
    "arithmetic": ARITHMETIC,
    "rounding": ROUNDING,
    "casts": CASTS,
    "logic": LOGIC,
    "texts": TEXTS,
    "times": TIMES,
}


def listed(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]
