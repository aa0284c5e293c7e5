"""The road of every conversion: the only place where tensors are touched."""
