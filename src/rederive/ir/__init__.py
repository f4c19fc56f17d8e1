"""The rule IR: frozen data that every language lowers to and every strategy rewrites."""
