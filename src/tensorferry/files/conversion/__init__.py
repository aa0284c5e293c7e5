"""Convert files: select and cast tensors, run jobs, publish and verify the output."""
