"""Python numbers: read lists of them, long ones in chunks, and say what is wrong with a list."""
