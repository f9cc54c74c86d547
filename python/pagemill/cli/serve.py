"""`pagemill serve`: a model over HTTP."""

from argparse import Namespace

from pagemill.config import ServeConfig, for_media
from pagemill.config.flags import FlagParser

_OTHER_BALANCERS = (
    "--data-parallel-backend",
    "--data-parallel-external-lb",
    "--data-parallel-hybrid-lb",
    "--data-parallel-rank",
)


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill serve",
        "Serves a model over HTTP with the paths and fields of OpenAI's API. SIGTERM lets running"
        " requests finish. The most used options are --host, --port and --api-key, under HTTP, and"
        " --max-model-len, --kv-cache-memory-bytes and --device.",
        "pagemill serve\npagemill serve model.gguf --port 9000 --served-model-name small\n"
        "pagemill serve /models/Qwen2.5-0.5B-Instruct --host 0.0.0.0 --api-key SECRET\n"
        "pagemill serve --config serve.yaml",
    )
    made.add_config(ServeConfig)
    made.refuse(
        _OTHER_BALANCERS,
        "the server balances the engines of --data-parallel-size itself, those of other machines"
        " (--headless), too; put servers with balancers of their own behind `pagemill route`",
    )
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Serves until a signal stops it."""
    config = parser.read(ServeConfig, args)
    if config.engine.nodes.node_rank:
        return _follow(config)
    from pagemill.server.stop_signals import until_stopped

    return until_stopped(lambda: _serve(config))


def _serve(config: ServeConfig) -> int:
    """Serves HTTP, or engines of a server that is elsewhere."""
    if config.server.data_parallel.headless:
        from pagemill.server.processes.headless import run_engines

        return run_engines(config)
    from pagemill.server.serve import run as run_server

    return run_server(config)


def _follow(config: ServeConfig) -> int:
    """Computes for node 0, without HTTP."""
    from pagemill.engine.node_follower import follow
    from pagemill.observe.logging import configure

    configure(config.observe.log_level, "", config.observe.log_format)
    return follow(for_media(config.engine, config.server.media))
