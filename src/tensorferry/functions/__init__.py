"""Functions of one framework, called with tensors of another."""
