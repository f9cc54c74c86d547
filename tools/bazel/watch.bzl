"""For repository rules: files whose change makes the repository anew, in every Bazel version."""

def watched_path(rctx, label):
    """The path of a file of a tree.

    Until Bazel 7, asking for a label's path watched the file; since 8 a rule has to say so.

    Args:
      rctx: of the repository rule.
      label: of the file.

    Returns:
      Its path.
    """
    path = rctx.path(label)
    if hasattr(rctx, "watch"):
        rctx.watch(path)
    return path
