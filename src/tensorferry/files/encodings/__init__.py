"""Encodings that several formats use: archives, arrays, messages, tables, packed elements."""
