"""Conversions that run beside the caller's work: `start` for one, `prefetch` for batches."""
