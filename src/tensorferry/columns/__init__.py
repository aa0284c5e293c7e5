"""Columns of tables: values in Arrow's memory and the like, with their nulls, as tensors."""
