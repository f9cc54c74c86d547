"""Tests of pagemill.engine.nodes."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, build
from pagemill.engine.nodes import Nodes, require_nodes
from pagemill.engine.outputs import EngineError
from pagemill.engine.ranks import RankWorkers
from pagemill.engine.reserved_port import reserved_port
from pagemill.runner.build import BuiltModel

OPTIONS = {"nnodes": 2, "pipeline_parallel_size": 2}
ARGUMENTS = {"max_num_seqs": 8, "num_blocks": 4, "num_threads": 2, "pack_cache_folder": "/a"}


def config(**options: Any) -> EngineConfig:
    return build(EngineConfig, OPTIONS | options)


def model(path: Path, content: bytes, op: str = "linear") -> BuiltModel:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    text = f"pagemill-program 3\nfile 0 @\nfile 1 {path}\nop {op}\n"
    return BuiltModel(text, "Llama", vocab_size=8, output_size=8, max_model_len=16)


def nodes(built: BuiltModel, arguments: Any = ARGUMENTS, **options: Any) -> Nodes:
    made = Nodes.of(config(**options), [built], arguments, num_blocks=7)
    assert made is not None
    return made


def test_one_machine_has_no_nodes(tmp_path: Path) -> None:
    built = model(tmp_path / "a", b"weights")
    one = build(EngineConfig, {"tensor_parallel_size": 2})
    assert Nodes.of(one, [built], ARGUMENTS, 7) is None


def test_the_secret_is_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("what all nodes know")
    made = nodes(model(tmp_path / "a", b"weights"), node_secret_file=str(file))
    assert made.secret == "what all nodes know"
    assert made.secret not in repr(made)


def test_the_same_model_elsewhere_is_the_same(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    here, there = (model(tmp_path / name / "model", content) for name in ("here", "there"))
    assert nodes(here).model == nodes(there).model
    own = ARGUMENTS | {"num_blocks": 9, "num_threads": 1, "pack_cache_folder": "/b"}
    assert nodes(here).options == nodes(there, own).options


def test_another_model_or_other_options_differ(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    built = model(tmp_path / "a", content)
    others = [
        model(tmp_path / "b", content[:-1] + b"x"),
        model(tmp_path / "c", content + b"x"),
        model(tmp_path / "d", content, op="norm"),
    ]
    assert len({nodes(each).model for each in [built, *others]}) == 4
    assert nodes(built).options != nodes(built, ARGUMENTS | {"max_num_seqs": 9}).options
    four = {"pipeline_parallel_size": 4}
    assert nodes(built).options != nodes(built, **four).options


def test_names_are_resolved_and_other_addresses_need_a_secret(tmp_path: Path) -> None:
    built = model(tmp_path / "a", b"weights")
    assert nodes(built).master == "127.0.0.1:29501"
    assert nodes(built, master_addr="localhost", master_port=7).master in ("127.0.0.1:7", "[::1]:7")
    with pytest.raises(ConfigError, match=r"--master-addr 10\.0\.0\.7 needs --node-secret-file"):
        nodes(built, master_addr="10.0.0.7")
    with pytest.raises(ConfigError, match="--master-addr no such host"):
        nodes(built, master_addr="no such host")
    secret = tmp_path / "secret"
    secret.write_text("what all nodes know\n")
    with_secret = nodes(built, master_addr="10.0.0.7", node_secret_file=str(secret))
    assert (with_secret.master, with_secret.secret) == ("10.0.0.7:29501", "what all nodes know")


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("short")
    short = nodes(model(tmp_path / "a", b"weights"), node_secret_file=str(secret))
    with pytest.raises(ConfigError, match=r"--node-secret-file: .* at least 16"):
        short.join(1, None)


def test_an_address_of_another_machine_cannot_be_listened_at(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("what all nodes know")
    built = model(tmp_path / "a", b"weights")
    elsewhere = nodes(built, master_addr="192.0.2.1", node_secret_file=str(secret))
    with pytest.raises(ConfigError, match=r"--master-addr.* 192\.0\.2\.1:29501"):
        elsewhere.join(0, None)


def joined_pair(built: BuiltModel) -> tuple[_native.NodesWorld, _native.NodesWorld]:
    """Ranks 0 and 1, a node each."""
    with reserved_port() as port, ThreadPoolExecutor(1) as pool:
        both = nodes(built, master_port=port)
        zero, one = both.join(0, None), both.join(1, None)
        joins = pool.submit(one.wait_for_all, 60.0)
        zero.wait_for_all(60.0)
        joins.result()
    return zero, one


def test_node_0_is_done_unless_it_has_lost_a_rank(tmp_path: Path) -> None:
    built = model(tmp_path / "a", b"weights")
    for loses in (False, True):
        zero, one = joined_pair(built)
        workers = RankWorkers(zero, None, [])
        if loses:
            dead = subprocess.Popen([sys.executable, "-c", ""])
            dead.wait()
            workers = RankWorkers(zero, None, [dead])
            with pytest.raises(EngineError, match="rank 1 of 2 .* ended with status 0"):
                workers.check()
        workers.stop()
        with pytest.raises(_native.StatusError, match="rank 0 of 2"):
            one.meet()
        assert one.is_done is not loses


def test_a_node_has_memory_for_whole_tensor_groups_only(tmp_path: Path) -> None:
    built = model(tmp_path / "a", b"weights")
    assert nodes(built).segment() is None
    whole = nodes(built, tensor_parallel_size=2)
    assert (whole.local_ranks, whole.shares_memory) == (2, True)
    divided = nodes(built, tensor_parallel_size=4, pipeline_parallel_size=1)
    assert (divided.local_ranks, divided.shares_memory) == (2, False)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"executor": "torch"}, "--executor torch"),
        ({"device": "cuda:1"}, "--device cuda:1"),
        ({"enable_lora": True}, "--enable-lora"),
        ({"kv_offloading_bytes": "1MiB"}, "--kv-offloading-bytes"),
        ({"weight_transfer_dir": "/dev/shm"}, "--weight-transfer-dir"),
        (
            {"speculative_config": '{"method": "eagle", "model": "head"}'},
            "--speculative-config with a draft model or head",
        ),
    ],
)
def test_what_nodes_cannot_do_is_refused_with_the_option(options: Any, name: str) -> None:
    tensor = {"tensor_parallel_size": 2, "pipeline_parallel_size": 1}
    with pytest.raises(ConfigError, match=f"{name}.* --nnodes 2"):
        require_nodes(config(**tensor, **options))
    require_nodes(build(EngineConfig, tensor | {"executor": "torch"}))
