"""Python: numbers, nested sequences of numbers or tensors, and typed buffers."""
