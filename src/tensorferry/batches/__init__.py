"""Batches: samples stacked and padded, leaf by leaf."""
