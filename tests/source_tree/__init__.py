"""The source tree as tests of the tree itself see it."""

from tests.source_tree.source_tree import ROOT, SourceFile, source_files

__all__ = ["ROOT", "SourceFile", "source_files"]
