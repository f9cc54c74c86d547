"""The version of everything that is built here. tests/lint:version_test compares the other places
that have to spell it."""

VERSION = "0.1.0"
