"""polars: series and frames, which are immutable."""
