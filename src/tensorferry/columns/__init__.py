"""Columns of tables: Arrow's memory and the like, with what is missing in it, as tensors."""
