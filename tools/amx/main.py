"""Runs test programs under Linux on a CPU with AMX that Bochs emulates; implements
`tools/amx/check`. Exits with 0 if all of them did."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.amx import boot_image

# Once pages have five levels (la57), Bochs does not return from system management mode, which Linux
# enters to turn ACPI on.
_BOCHSRC = """cpu: model=sapphire_rapids, exclude_features="la57"
cpu: count=1, ips=50000000, reset_on_triple_fault=0
memory: guest=1500, host=1500
romimage: file={bios}
vgaromimage: file={vga_bios}
vga: extension=vbe
pci: enabled=1, chipset=i440fx
ata0-master: type=cdrom, path={folder}/cd.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev={folder}/serial.txt
display_library: nogui
log: {folder}/bochs.log
clock: sync=none, time0=utc
panic: action=fatal
error: action=report
info: action=ignore
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/amx/check", description=__doc__)
    add = parser.add_argument
    add("programs", nargs="+", type=Path, help="test programs, as ./bazelw build leaves them")
    add("--bochs", type=Path, default="bochs", help="Bochs 3.0 with third_party/bochs' patch")
    add("--kernel", type=Path, required=True, help="a Linux image, 5.16 or newer (vmlinuz)")
    add("--bios", type=Path, default="/usr/share/bochs/BIOS-bochs-latest")
    add("--vga-bios", type=Path, default="/usr/share/vgabios/vgabios.bin")
    add("--isolinux", type=Path, default="/usr/lib/ISOLINUX/isolinux.bin")
    add("--ldlinux", type=Path, default="/usr/lib/syslinux/modules/bios/ldlinux.c32")
    add("--busybox", type=Path, default="/bin/busybox", help="linked statically")
    add("--arguments", default="--gtest_brief=1", help="for every program [%(default)s]")
    add("--timeout", type=int, default=3600, help="seconds for all of them [%(default)s]")
    return parser.parse_args(arguments)


def missing(options: argparse.Namespace) -> str | None:
    """An error message if something must be installed or built first; else None."""
    if shutil.which("genisoimage") is None:
        return "there is no genisoimage (Debian: genisoimage)"
    if shutil.which(options.bochs) is None:
        return f"--bochs: there is no program {options.bochs} (third_party/bochs/README.md)"
    files = ("kernel", "bios", "vga_bios", "isolinux", "ldlinux", "busybox")
    for name in files:
        if not getattr(options, name).is_file():
            flag = name.replace("_", "-")
            return f"--{flag}: there is no file {getattr(options, name)} (tools/amx/README.md)"
    for program in options.programs:
        if not program.is_file():
            return f"there is no program {program}; build it first"
    return None


def statuses(output: str) -> dict[str, int]:
    """Exit statuses of the programs that ended, by name, from the serial output."""
    ended = re.findall(r"^== (\S+)\s*$|^== status (\d+)\s*$", output, re.MULTILINE)
    names = [name for name, _ in ended if name]
    return dict(zip(names, (int(status) for _, status in ended if status), strict=False))


def check(options: argparse.Namespace, folder: Path) -> int:
    """Boots, copies the serial output to standard output, and returns the exit status."""
    names = [program.name for program in options.programs]
    files = boot_image.program_files(options.programs) | {"bin/busybox": options.busybox}
    contents = {name: file.read_bytes() for name, file in files.items()}
    contents["init"] = boot_image.init_script(names, options.arguments).encode()
    loader = (options.isolinux, options.ldlinux)
    boot_image.write_cd(options.kernel, boot_image.archive(contents), loader, folder / "cd.iso")
    (folder / "bochsrc").write_text(
        _BOCHSRC.format(bios=options.bios, vga_bios=options.vga_bios, folder=folder)
    )
    emulator = subprocess.Popen(
        [options.bochs, "-q", "-f", str(folder / "bochsrc")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        output = _follow(folder / "serial.txt", emulator, len(names), options.timeout)
    finally:
        emulator.kill()
        emulator.wait()
    ended = statuses(output)
    for name in names:
        print(f"{name}: {'passed' if ended.get(name) == 0 else ended.get(name, 'did not end')}")
    passed = all(ended.get(name) == 0 for name in names)
    if not passed:
        print("The emulator's last words:", *last_words(folder / "bochs.log"), sep="\n")
    return 0 if passed else 1


def last_words(log: Path) -> list[str]:
    """The last five lines of the emulator's log, without those of unknown registers."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return [line for line in text.splitlines() if "Unknown register" not in line][-5:]


def _follow(serial: Path, emulator: subprocess.Popen[bytes], programs: int, timeout_s: int) -> str:
    """Prints what is written to `serial` until all programs or the emulator ended, or the time is
    up."""
    shown, deadline = "", time.monotonic() + timeout_s
    while len(statuses(shown)) < programs and time.monotonic() < deadline:
        ended = emulator.poll() is not None
        text = serial.read_text(errors="replace") if serial.exists() else ""
        print(text[len(shown) :], end="", flush=True)
        shown = text
        if ended:
            break
        time.sleep(1)
    return shown


def main() -> int:
    """Checks requirements, then runs."""
    options = parse(sys.argv[1:])
    reason = missing(options)
    if reason is not None:
        print(f"tools/amx/check: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        return check(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
