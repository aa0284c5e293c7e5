"""Python numbers: read out of lists, in chunks, and what is wrong with them."""
