"""The tour: 27 everyday cases, live, which `python -m examples.tour` runs and prints."""
