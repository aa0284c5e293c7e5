"""Find the format of a path, and open it: a file, or a folder of shards with its index."""
