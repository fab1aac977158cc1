"""Deliberate breaks of the package, one at a time, and the tests that should notice: `make breaks`, docs/testing.md."""
