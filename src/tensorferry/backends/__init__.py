"""One file per framework; each holds a `BACKEND`, and can be imported without its framework."""
