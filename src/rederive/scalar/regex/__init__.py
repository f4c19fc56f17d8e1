"""Regular expressions of Soufflé (ECMAScript) and of Spark (Java), translated for Python and matched in bounded time."""
