"""CuPy: writable arrays in the memory of CUDA devices; there is none on the host."""
