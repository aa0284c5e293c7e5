"""Files of tables.

They are read by the code for tables in memory, so they stand above the formats.
"""
