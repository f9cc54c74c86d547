"""Input and errors of `tools/amx/check`, without the emulator itself."""

from pathlib import Path

import pytest

from tools.amx import boot_image, main


def test_statuses_of_programs_that_ended() -> None:
    output = "[boot]\r\n== a_test\r\nsome == text\r\n== status 0\r\n== b_test\r\n== status 1\r\n"
    assert main.statuses(output) == {"a_test": 0, "b_test": 1}
    assert main.statuses(output + "== c_test\r\nhalf a li") == {"a_test": 0, "b_test": 1}
    assert main.statuses("") == {}


def test_init_runs_every_program_and_switches_off() -> None:
    script = boot_image.init_script(["a_test", "b_test"], "--gtest_brief=1")
    assert 'echo "== a_test"\n/t/a_test --gtest_brief=1; status=$?\n' in script
    assert 'echo "== status $status"\n' in script
    assert script.index("a_test") < script.index("b_test") < script.index("poweroff")


def test_last_words_are_the_emulators_complaints(tmp_path: Path) -> None:
    log = tmp_path / "bochs.log"
    assert main.last_words(log) == []
    log.write_text("".join(f"{i}e RDMSR: Unknown register 0xe8\n{i}e bad tile\n" for i in range(9)))
    assert main.last_words(log) == [f"{i}e bad tile" for i in range(4, 9)]


def test_archive_has_its_files_and_their_folders() -> None:
    data = boot_image.archive({"init": b"abcde", "lib64/x/ld.so": b""})
    names, at = {}, 0
    while True:
        assert data[at : at + 6] == b"070701" and at % 4 == 0
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, length = fields[1], fields[6], fields[11]
        name = data[at + 110 : at + 110 + length - 1].decode()
        start = at + (110 + length + 3) // 4 * 4
        if name == "TRAILER!!!":
            break
        names[name] = (mode, data[start : start + size])
        at = start + (size + 3) // 4 * 4
    assert names["init"] == (0o100755, b"abcde")
    assert names["lib64/x/ld.so"] == (0o100755, b"")
    assert {n for n, (mode, _) in names.items() if mode == 0o40755} == {
        *("dev", "lib64", "lib64/x", "proc", "sys", "tmp"),
    }


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main.shutil, "which", lambda name: str(name))
    options = main.parse(["--kernel", str(tmp_path / "vmlinuz"), str(tmp_path / "a_test")])
    assert "--kernel: there is no file" in str(main.missing(options))
    for name in ("kernel", "bios", "vga_bios", "isolinux", "ldlinux", "busybox"):
        setattr(options, name, tmp_path / name)
        (tmp_path / name).touch()
    assert "there is no program" in str(main.missing(options))
    (tmp_path / "a_test").touch()
    assert main.missing(options) is None
    monkeypatch.setattr(main.shutil, "which", lambda name: None)
    assert "genisoimage" in str(main.missing(options))
