"""TensorFlow: immutable eager tensors, and variables whose value is such a tensor."""
