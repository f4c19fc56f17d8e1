"""Python functions that SQL queries call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from rederive.engines.spark.session.types import sql_type
from rederive.ir.terms import Type


class PythonFunctions:
    """The functions that a session knows already."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._registered: set[str] = set()

    def register(self, name: str, function: Callable[..., Any], result: Type) -> None:
        """Register a function that returns a value of this type and an error text."""
        if name in self._registered:
            return
        value = StructField("value", _parse_datatype_string(sql_type(result)))
        structure = StructType([value, StructField("error", StringType())])
        self.session.udf.register(name, udf(function, structure, useArrow=False))
        self._registered.add(name)
