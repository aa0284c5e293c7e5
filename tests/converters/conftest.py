"""Modules that import libraries which `make converters` alone installs are no tests."""

collect_ignore_glob = ["from_*.py"]
