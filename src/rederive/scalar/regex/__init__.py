"""Regular expressions of Soufflé and of Java, matched in bounded time."""
