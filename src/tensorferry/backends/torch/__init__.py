"""PyTorch: writable tensors with an autograd graph, on the host and on accelerators."""
