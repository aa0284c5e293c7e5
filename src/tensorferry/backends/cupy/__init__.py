"""CuPy: writable arrays on CUDA devices, never on the host."""
