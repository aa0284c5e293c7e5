"""Queues of a device, page-locked memory, and large transfers through it."""
