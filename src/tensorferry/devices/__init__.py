"""Streams of devices, and page-locked host memory for transfers."""
