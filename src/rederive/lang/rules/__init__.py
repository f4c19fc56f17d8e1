"""Active rules as they are written: definitions, statements, lowering."""
