"""Python numbers: read lists of them, in chunks if they are long, and say what is wrong with a list."""
