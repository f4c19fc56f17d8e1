"""One file per strategy: the rules of a component become maintenance rules."""
