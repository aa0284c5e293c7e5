"""polars: series and frames, which nobody can write."""
