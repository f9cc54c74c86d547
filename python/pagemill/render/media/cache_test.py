"""Prepared images that are kept: what finds them, how many there are, and when they go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagemill.inputs.media_owner import MediaOwner
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.render.media.cache import MediaKey, PreparedCache, content_key, uuid_key

OWNER = MediaOwner("key", "tenant", "salt")
IMAGE = PreparedMedia("image", np.zeros((3, 100, 100), np.float32))
BYTES = IMAGE.values.nbytes


def of_size(size: int) -> PreparedMedia:
    return PreparedMedia("image", np.zeros(size, np.float32))


def long_name(number: int) -> MediaKey:
    return uuid_key("image", OWNER, f"{number:0256}")


def test_names_belong_to_their_owner_and_contents_to_their_salt():
    others = [OWNER._replace(**{field: "other"}) for field in OWNER._fields]
    assert len({uuid_key("image", owner, "a") for owner in (OWNER, *others)}) == 4
    assert content_key("image", "salt", b"a") == content_key("image", "salt", b"a")
    assert content_key("image", "salt", b"a") != content_key("image", "other", b"a")
    # A name is never the digest of a file.
    digest = content_key("image", "", b"a").name
    assert isinstance(digest, bytes)
    assert uuid_key("image", MediaOwner(), digest.hex()).name != digest


def test_what_was_used_longest_ago_goes_first():
    cache = PreparedCache(300_000)
    a, b, c = (uuid_key("image", OWNER, name) for name in "abc")
    for key in (a, b):
        cache.put(key, IMAGE)
    assert cache.get(a) is IMAGE
    cache.put(c, IMAGE._replace(grid=(1, 2, 2)))
    assert cache.get(b) is None and cache.get(a) is IMAGE and cache.get(c) is not None
    assert 2 * BYTES < cache.num_bytes <= 300_000


def test_bytes_are_counted_once():
    cache = PreparedCache(300_000)
    key = uuid_key("image", OWNER, "a")
    cache.put(key, IMAGE)
    before = cache.num_bytes
    cache.put(key, IMAGE)
    assert cache.num_bytes == before
    # One that does not fit takes the place of none but its own.
    cache.put(uuid_key("image", OWNER, "b"), of_size(10**5))
    assert cache.get(key) is IMAGE
    cache.put(key, of_size(10**5))
    assert cache.get(key) is None and cache.num_bytes == 0


def test_long_names_count():
    cache = PreparedCache(10_000)
    for number in range(100):
        cache.put(long_name(number), of_size(1))
    assert len([n for n in range(100) if cache.get(long_name(n)) is not None]) == 4


def test_a_reset_reaches_the_caches_of_other_processes(tmp_path: Path):
    first, second = (PreparedCache(300_000, tmp_path / "resets") for _ in range(2))
    key = uuid_key("image", OWNER, "a")
    for _ in range(2):
        first.put(key, IMAGE)
        second.put(key, IMAGE)
        first.reset()
        assert first.get(key) is None and second.get(key) is None
        assert second.num_bytes == 0


def test_a_reset_that_cannot_be_written_clears_its_own_process(tmp_path: Path):
    cache = PreparedCache(300_000, tmp_path)
    key = uuid_key("image", OWNER, "a")
    cache.put(key, IMAGE)
    with pytest.raises(IsADirectoryError):
        cache.reset()
    assert cache.get(key) is None and cache.num_bytes == 0


def test_without_bytes_nothing_is_kept():
    cache = PreparedCache(0)
    cache.put(uuid_key("image", OWNER, "a"), IMAGE)
    assert not cache.keeps and cache.get(uuid_key("image", OWNER, "a")) is None
