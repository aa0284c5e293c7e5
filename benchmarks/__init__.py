"""What conversions cost, as ratios against the framework's own line in the same run.

``python -m benchmarks`` prints one table and writes it into the pages of ``docs/benchmarks``;
``docs/benchmarks.md`` says how it is measured. ``python -m pytest benchmarks`` times the same lines
with pytest-benchmark, whose stored runs can be compared from one version of tensorferry to the
next.
"""
