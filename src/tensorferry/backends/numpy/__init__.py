"""NumPy: host arrays, the common currency, and the only place where host memory is packed and cast."""
