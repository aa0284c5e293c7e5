"""Backends: the protocol, and a folder for each framework.

All can be imported without the frameworks.
"""
