"""Writes a CD from which an emulated PC boots Linux, runs programs and powers off."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

# Bochs' model of a CPU with AMX has the flag of fast short string moves but not that of fast moves,
# and Linux 6.1 then moves short strings wrongly; 580 is that flag's number.
KERNEL_ARGUMENTS = (
    "console=ttyS0,115200 quiet clearcpuid=580 mitigations=off tsc=reliable nosmp nokaslr lsm="
)

_INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
{commands}
/bin/busybox poweroff -f
"""

_COMMAND = """echo "== {name}"
/t/{name} {arguments}; status=$?
[ $status -lt 128 ] || /bin/busybox dmesg | /bin/busybox tail -n 3
echo "== status $status"
"""


def program_files(programs: Sequence[Path]) -> dict[str, Path]:
    """Programs as /t/<name>, and the shared libraries that the loader would find for them."""
    files = {f"t/{program.name}": program for program in programs}
    for program in programs:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        for library in re.findall(r"(/\S+) \(0x", listed.stdout):
            files[library.lstrip("/")] = Path(library)
    return files


def init_script(names: Sequence[str], arguments: str) -> str:
    """The init script: runs every program in turn, and prints its status on a separate line, after
    the kernel's last lines if a signal ended it."""
    commands = (_COMMAND.format(name=name, arguments=arguments) for name in names)
    return _INIT.format(commands="".join(commands))


def archive(files: dict[str, bytes]) -> bytes:
    """An initramfs: a cpio archive (newc) of executable files, with the folders that they need."""
    folders = {"dev", "proc", "sys", "tmp"}
    for name in files:
        folders.update(str(parent) for parent in Path(name).parents if str(parent) != ".")
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in sorted(folders)]
    entries += [(name, stat.S_IFREG | 0o755, content) for name, content in files.items()]
    parts = [_entry(i, *entry) for i, entry in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1)]
    return b"".join(parts)


def write_cd(kernel: Path, initramfs: bytes, isolinux: Sequence[Path], to: Path) -> None:
    """Writes the ISO image `to`; its folder also keeps the sources.

    Raises:
        subprocess.CalledProcessError: genisoimage failed.
    """
    folder = to.parent / "cd/isolinux"
    folder.mkdir(parents=True)
    for file in isolinux:
        shutil.copy(file, folder)
    shutil.copy(kernel, folder / "vmlinuz")
    (folder / "initrd.img").write_bytes(initramfs)
    (folder / "isolinux.cfg").write_text(
        "serial 0 115200\ndefault t\nprompt 0\ntimeout 10\nlabel t\n kernel vmlinuz\n"
        f" append initrd=initrd.img {KERNEL_ARGUMENTS}\n"
    )
    boot = "-b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4"
    flags = [*boot.split(), "-boot-info-table", "-J", "-R"]
    command = ["genisoimage", "-quiet", "-o", str(to), *flags]
    subprocess.run([*command, str(folder.parent)], check=True)


def _entry(inode: int, name: str, mode: int, content: bytes) -> bytes:
    links = 2 if stat.S_ISDIR(mode) else 1
    path = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
    return _padded(head) + _padded(content)


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
