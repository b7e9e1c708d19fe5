"""Benchmarks. Each is a module to run: `python -m tests.bench.best_of_n`."""
