"""Weights under another name: tables that say which elements of which tensors become which."""
