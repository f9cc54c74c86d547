"""The peers by name; imported at first use."""

from __future__ import annotations

import importlib

from tools.bench.compare.peers.base import Peer

PEERS = {
    "llama-bench": "llama_cpp:LlamaBench",
    "llama.cpp": "llama_cpp:LlamaServer",
    "openvino": "openvino_genai:OpenVino",
    "pagemill": "pagemill_server:Pagemill",
    "pagemill-int8": "pagemill_server:PagemillInt8",
    "transformers": "hf_transformers:Transformers",
    "vllm": "vllm_server:Vllm",
}


def peer(name: str) -> Peer:
    """Returns the peer of that name, a key of `PEERS`."""
    module, _, found = PEERS[name].partition(":")
    return getattr(importlib.import_module(f"tools.bench.compare.peers.{module}"), found)()
