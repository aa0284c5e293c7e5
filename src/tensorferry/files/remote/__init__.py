"""Files that are named by URLs: what a URL is, requests of ranges of bytes, and tensors that are read by them."""
