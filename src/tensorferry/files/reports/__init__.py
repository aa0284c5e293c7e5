"""Look at contents: check, compare, summarise, compute statistics."""
