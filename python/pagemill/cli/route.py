"""`pagemill route`: several servers behind one address."""

from argparse import Namespace

from pagemill.config import RouteConfig
from pagemill.config.flags import FlagParser


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill route",
        "Passes requests on to several servers of one model, by load or to the server that has the"
        " longest prefix of the prompt in its cache. A server that fails gets no requests until it"
        " is ready again. docs/routing.md says how.",
        "pagemill route --server http://10.0.0.1:8000 --server http://10.0.0.2:8000\n"
        "pagemill route --server http://10.0.0.1:8000 --server http://10.0.0.2:8000"
        " --policy prefix_aware --model /models/Qwen2.5-0.5B-Instruct --server-key-file admin.key\n"
        "pagemill route --config route.yaml",
    )
    made.add_config(RouteConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Routes until a signal stops it."""
    config = parser.read(RouteConfig, args)
    from pagemill.server.stop_signals import until_stopped

    def serve() -> int:
        from pagemill.router.serve import run as run_router

        return run_router(config)

    return until_stopped(serve)
