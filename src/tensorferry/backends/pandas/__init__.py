"""pandas: series, indexes and frames."""
