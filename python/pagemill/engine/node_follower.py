"""What `pagemill serve` does on a machine without rank 0: its ranks run the steps of rank 0."""

from __future__ import annotations

import logging
import os
import signal
import threading

from pagemill import _native
from pagemill.config import EngineConfig
from pagemill.engine.engine_memory import EngineMemory
from pagemill.engine.executor_sizes import ExecutorSizes, weights_dtype
from pagemill.engine.loading import build_options, build_ranks
from pagemill.engine.media_adapters import with_media_adapters
from pagemill.engine.model_source import open_model
from pagemill.engine.nodes import Nodes
from pagemill.engine.outputs import EngineError
from pagemill.engine.ranks import RankWorkers, stages_of

_LOGGER = logging.getLogger("pagemill.engine")
_LOOK_EVERY_S = 0.5
_GRACE_S = 2.0  # in which a rank that waits for the dead one ends by itself


def follow(config: EngineConfig) -> int:
    """Joins the other machines and runs rank 0's steps until it ends; returns the exit status: 0 if
    rank 0 was stopped, 1 if a rank has died.

    Raises:
        ConfigError: the configuration does not fit the model, this machine or the other ones.
        FetchError, WeightsError, ModelConfigError: the model cannot be found, read or built.
        EngineError: another rank of this machine could not start.
        StatusError: the program cannot be bound.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it waits, no handler would run
    source, stored, _ = open_model(config.model, build_options(config.model))
    config = with_media_adapters(config, stored)
    ranks = build_ranks(source, config)
    sizes = ExecutorSizes.of(ranks[0], config, weights_dtype(source.config))
    num_blocks = EngineMemory.of(ranks, config, sizes).kv_budget().num_blocks
    arguments = sizes.option_arguments(config, num_blocks)
    local = config.local_ranks
    stages = stages_of(ranks, config, sizes)
    programs = [ranks[rank].program_text for rank in local]
    workers = RankWorkers.start(
        programs[1:],
        arguments,
        stages=stages[local.start + 1 : local.stop],
        nodes=Nodes.of(config, ranks, arguments, num_blocks),
        first_rank=local.start,
    )
    world = workers.world
    assert isinstance(world, _native.NodesWorld)
    ended = threading.Event()
    try:
        workers.wait_joined()
        options = sizes.executor_options(config, world.number)
        executor = _native.NativeExecutor(programs[0], options, world)
        workers.wait_ready()
        _LOGGER.info("node %d runs ranks %s", config.nodes.node_rank, ", ".join(map(str, local)))
        threading.Thread(target=_watch, args=(workers, ended), daemon=True).start()
        stage = stages[local.start].native() if stages else None
        _native.follow_steps(executor, world, stage=stage)
    except _native.StatusError as error:
        if world.is_done:
            return 0
        if error.code != "UNAVAILABLE":
            raise
        _LOGGER.error("%s: this node ends, too", error.message)
        return 1
    finally:
        ended.set()
        workers.stop()
    return 0


def _watch(workers: RankWorkers, ended: threading.Event) -> None:
    """Ends this process if a rank dies for which it does not wait, so that all others notice."""
    while not ended.wait(_LOOK_EVERY_S):
        try:
            workers.check()
        except EngineError as error:
            if ended.wait(_GRACE_S):
                return
            _LOGGER.error("%s", error)
            logging.shutdown()
            os._exit(1)  # the main thread waits for another rank
