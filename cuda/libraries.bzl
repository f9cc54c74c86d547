"""Kernels of libraries: which instances of their templates are compiled, and when.

An instance is a translation unit of its own, which is made of this list. Those in `tested` are part
of `//...`, which CI compiles; those in `released` are compiled for releases alone.
"""

# FlashInfer's attention over pages, for (head_dim, rows of a tile). A head_dim is used if it has
# tiles of 16 and 64 rows, and of 128 below 256. One takes 10 s of one core to compile for two
# architectures.
FLASHINFER_ATTENTION = struct(
    tested = [(128, 16), (128, 64), (128, 128), (256, 16), (256, 64)],
    released = [(64, 16), (64, 64), (64, 128)],
)

# FlashInfer's attention for prompts on compute capability 9.0, for (head_dim,). One takes 40 s of one
# core, for that architecture alone.
FLASHINFER_HOPPER = struct(
    tested = [(128,), (256,)],
    released = [(64,)],
)

def instance_files(instances, names):
    """The files that library_instances() makes.

    Args:
      instances: of `tested` or `released`.
      names: the format of their names, `head{}_rows{}`.

    Returns:
      Labels.
    """
    return [":" + names.format(*instance) + ".cc" for instance in instances]

def library_instances(name, instances, names, include, declaration, macro):
    """Makes a translation unit of each instance, and a header that lists them.

    Args:
      name: of the header, without `.h`. It defines `macro(X)` as `X(...)` of each instance, of
        those in `released` if PAGEMILL_RELEASE is defined.
      instances: a struct with `tested` and `released`, lists of tuples.
      names: the format of the names of units.
      include: the header that defines the template.
      declaration: the format of a unit's explicit instantiation.
      macro: a name.
    """
    for instance in instances.tested + instances.released:
        unit = names.format(*instance)
        native.genrule(
            name = unit,
            outs = [unit + ".cc"],
            cmd = "printf '#include \"%s\"\\n\\n%s\\n' '{}' '{}' > $@".format(
                include,
                declaration.format(*instance),
            ),
        )
    calls = [
        " ".join(["X({})".format(", ".join([str(part) for part in instance])) for instance in some])
        for some in [instances.tested + instances.released, instances.tested]
    ]
    native.genrule(
        name = name,
        outs = [name + ".h"],
        cmd = ("printf '#ifdef PAGEMILL_RELEASE\\n#define %s(X) %s\\n" +
               "#else\\n#define %s(X) %s\\n#endif\\n' {0} '{1}' {0} '{2}' > $@").format(macro, *calls),
    )
