"""Fakes for tests of benchmarks."""
