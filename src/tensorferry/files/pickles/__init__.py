"""Pickles, read by a machine that runs and imports nothing, and written."""
