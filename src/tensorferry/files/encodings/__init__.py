"""What several file formats are encoded in: archives, arrays, messages, tables, packed elements."""
