"""The base of formats: contents, stored tensors, trees, the pump of bytes, the class `Format`."""
