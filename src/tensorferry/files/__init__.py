"""Files of tensors: open, check, convert and compare them, whatever their format.

No module here is about one format, and none imports a framework. `formats` has a module or folder
for each format.
"""
