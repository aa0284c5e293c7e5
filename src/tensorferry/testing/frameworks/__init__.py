"""The witnesses of this package, in one file for each framework."""
