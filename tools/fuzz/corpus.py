"""Packs libFuzzer's corpus folder into one text file, one input per line in base64, and back.

corpus.py pack FOLDER FILE       writes FILE
corpus.py unpack FILE FOLDER     adds the inputs to FOLDER
"""

import base64
import hashlib
import pathlib
import sys


def pack(folder: pathlib.Path, file: pathlib.Path) -> None:
    inputs = sorted({path.read_bytes() for path in folder.iterdir()}, key=lambda x: (len(x), x))
    file.write_text("".join(base64.b64encode(data).decode() + "\n" for data in inputs))


def unpack(file: pathlib.Path, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for line in file.read_text().splitlines():
        data = base64.b64decode(line)
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


if __name__ == "__main__":
    {"pack": pack, "unpack": unpack}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
