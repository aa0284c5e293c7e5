"""JAX: immutable arrays, 64-bit dtypes only when they are switched on."""
