"""NumPy: arrays in host memory, through which all conversions on the host go."""
