"""Arrow: arrays and tables of pyarrow, which are immutable."""
