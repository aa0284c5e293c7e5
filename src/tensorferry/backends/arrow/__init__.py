"""Arrow: arrays and tables of pyarrow, which nobody can write."""
