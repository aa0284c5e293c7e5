"""Tensors at rest: files are opened, checked, converted and compared here, whatever their format.

Nothing here knows a format, and nothing here imports a framework; `formats` has one module or folder for each format.
"""
