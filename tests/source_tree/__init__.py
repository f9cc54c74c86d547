"""The source tree, for tests of the tree itself."""

from tests.source_tree.source_tree import ROOT, SourceFile, source_files

__all__ = ["ROOT", "SourceFile", "source_files"]
