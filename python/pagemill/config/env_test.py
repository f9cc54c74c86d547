"""Tests of pagemill.config.env."""

from pathlib import Path

import pytest

from pagemill.config import ConfigError, read_environment
from pagemill.config.env import NAMES, refuse_foreign_key


def test_the_environment_has_few_names() -> None:
    assert len(NAMES) <= 8


def test_keys() -> None:
    assert read_environment({}).api_keys == ()
    assert read_environment({"PAGEMILL_API_KEY": "a, b"}).api_keys == ("a", "b")


@pytest.mark.parametrize("value", ["", " ", "a,,b", "a\nb", "ä"])
def test_unusable_keys_do_not_leave_the_server_open(value: str) -> None:
    with pytest.raises(ConfigError, match="PAGEMILL_API_KEY"):
        read_environment({"PAGEMILL_API_KEY": value})


def test_a_misspelt_name_is_an_error_and_a_foreign_one_is_not() -> None:
    with pytest.raises(ConfigError, match="did you mean PAGEMILL_API_KEY"):
        read_environment({"PAGEMILL_APIKEY": "x"})
    # Kubernetes sets these for a service called pagemill.
    read_environment({"PAGEMILL_PORT": "tcp://10.0.0.1:80", "PAGEMILL_SERVICE_HOST": "10.0.0.1"})


def test_a_key_of_another_server_does_not_leave_this_one_open() -> None:
    refuse_foreign_key({})
    refuse_foreign_key({"VLLM_API_KEY": "", "VLLM_PORT": "1"})
    with pytest.raises(ConfigError, match="VLLM_API_KEY is not read.* set PAGEMILL_API_KEY"):
        refuse_foreign_key({"VLLM_API_KEY": "k"})


def test_cache_folder_precedence() -> None:
    both = {"PAGEMILL_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}
    assert read_environment(both).cache_dir == Path("/a")
    assert read_environment({"XDG_CACHE_HOME": "/b"}).cache_dir == Path("/b/pagemill")
    relative = read_environment({"XDG_CACHE_HOME": "b"}).cache_dir
    assert relative == Path.home() / ".cache" / "pagemill"
    with pytest.raises(ConfigError, match="absolute"):
        read_environment({"PAGEMILL_CACHE_DIR": "a"})
