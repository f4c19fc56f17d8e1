"""Rules become Python functions: join plan, expressions, function text."""
