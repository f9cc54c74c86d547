"""`pagemill serve-models`: several models behind one address."""

from argparse import Namespace

from pagemill.config.flags import FlagParser
from pagemill.config.serve_models import ServeModelsConfig


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill serve-models",
        "Serves the models that a file lists behind one address. A model is loaded, in a process of"
        " its own, when a request first names it, and stopped when it has been idle, or when"
        " another one needs its memory. docs/several_models.md says how.",
        "pagemill serve-models models.yaml\n"
        "pagemill serve-models models.yaml --max-models 2 --host 0.0.0.0 --api-key-file keys.yaml",
    )
    made.add_config(ServeModelsConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Serves until a signal stops it."""
    config = parser.read(ServeModelsConfig, args)
    from pagemill.server.stop_signals import until_stopped

    def serve() -> int:
        from pagemill.model_host.serve import run as run_host

        return run_host(config)

    return until_stopped(serve)
