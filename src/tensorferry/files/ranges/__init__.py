"""Parts of tensors in files: which elements are asked for, which bytes of a file they are, how they are read."""
