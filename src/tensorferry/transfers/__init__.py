"""Conversions that go on beside the caller's own work: one at a time, or a batch ahead."""
