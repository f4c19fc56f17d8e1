"""Functions of Spark that are refused by name, with the reason and what to write instead."""

from __future__ import annotations

from typing import Final

_RANDOM: Final = "its value differs from call to call: write it into a column when you insert the row"
_PLACE: Final = "it depends on how Spark reads the rows: use a column of the table"
_SESSION: Final = "it depends on the session: write the value as a literal"
_SKETCH: Final = "sketches approximate: use count(DISTINCT ...), percentile(...) or GROUP BY, which are exact"
_TIME_TYPE: Final = "the type TIME is not supported: use a TIMESTAMP, or an INTERVAL since midnight"
_GEO: Final = "spatial types are not supported: hold well-known binary as BINARY"
_JAVA: Final = "it calls Java code: use a function of docs/sql.md"
_FORMAT: Final = "decode the values before you insert them, and use ARRAY, STRUCT and MAP columns"
_XML: Final = "XML and XPath are Java's parsers: use JSON with from_json, or decode it before you insert the row"
_VARIANT: Final = "the type VARIANT is not supported: use get_json_object(text, '$.a[0].b'), or from_json(text, 'a INT, ...')"
_KEY: Final = "encrypt and decrypt the values before you insert them"

_HINTS: Final = (
    ("rand random randn randstr uniform uuid shuffle", _RANDOM),
    ("monotonically_increasing_id spark_partition_id input_file_name input_file_block_start input_file_block_length", _PLACE),
    ("current_user user session_user version current_path current_catalog current_database current_schema", _SESSION),
    ("current_time make_time to_time try_to_time time time_bucket time_diff time_trunc", _TIME_TYPE),
    ("time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds", _TIME_TYPE),
    ("st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid", _GEO),
    ("java_method reflect try_reflect measure python_worker_logs", _JAVA),
    ("from_avro to_avro schema_of_avro from_protobuf to_protobuf", _FORMAT),
    ("from_xml to_xml schema_of_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number", _XML),
    ("xpath_short xpath_string", _XML),
    ("aes_encrypt aes_decrypt try_aes_decrypt", _KEY),
    ("collate collation collations", "compare lower(a) = lower(b) instead of using a collation"),
    ("bitmap_construct_agg bitmap_or_agg bitmap_and_agg", "use count(DISTINCT ...) or collect_set"),
    ("parse_json try_parse_json variant_get try_variant_get is_variant_null is_valid_variant to_variant_object", _VARIANT),
    ("schema_of_variant schema_of_variant_agg variant_explode variant_explode_outer", _VARIANT),
    ("sentences", "use split and regexp_extract_all: the rules of words and sentences are Java's"),
    ("make_interval try_make_interval", "add it to a time or subtract it: ts + make_interval(...); or use make_dt_interval"),
    ("make_ym_interval", "add it to a time or subtract it: d + make_ym_interval(1, 6)"),
    ("vector_avg vector_sum", "use sum and avg of the elements, with posexplode and GROUP BY"),
    (
        "vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize",
        "use aggregate(zip_with(a, b, (x, y) -> x * y), 0D, (sum, x) -> sum + x)",
    ),
)
REFUSED_FUNCTIONS: Final[dict[str, str]] = {name: hint for names, hint in _HINTS for name in names.split()}
"""The names, and what to do instead."""
_SKETCHES: Final = ("hll_", "theta_", "kll_", "tuple_", "approx_top_k", "count_min_sketch")


def refusal(name: str) -> str:
    """What to do instead of calling a function that does not exist here.

    >>> refusal("uuid") == refusal("rand"), refusal("kll_sketch_agg_double")[:8], refusal("no_such_function")[:15]
    (True, 'sketches', 'see docs/sql.md')
    """
    if name.startswith(_SKETCHES):
        return _SKETCH
    return REFUSED_FUNCTIONS.get(name, "see docs/sql.md for the supported functions")
