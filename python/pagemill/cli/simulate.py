"""`pagemill simulate`: how many engines a load needs, and what its users would see."""

import json
import sys
from argparse import Namespace
from typing import Any

from pagemill.config.flags import FlagParser
from pagemill.simulation.config import SimulateConfig
from pagemill.simulation.presets import DEVICES, MODELS

_EXAMPLES = """\
pagemill simulate llama-3.1-8b --hardware h100 --request-rate 20
pagemill simulate llama-3.1-70b --hardware h200 --devices 4 --concurrency 200 --turns 8
pagemill simulate model.gguf --hardware cpu-2core --request-rate 0.5 --plot report.svg
pagemill simulate --engines 1000 --num-requests 100k --request-rate 15000 --routing round_robin
pagemill simulate --trace conversation_trace.jsonl --engines 8 --json"""


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill simulate",
        "Runs the real scheduler and KV cache in virtual time: arithmetic and memory traffic of"
        " each step are priced by a roofline model of the device instead of run. Reports"
        " throughput, times to first token and between tokens, queueing, cache hits and"
        " preemptions, for one engine or thousands behind a router. The same options give the same"
        f" report everywhere. Models known by name: {', '.join(MODELS)}. Hardware:"
        f" {', '.join(sorted(DEVICES))}. docs/simulator.md has the formulas and an example.",
        _EXAMPLES,
    )
    made.add_argument("--json", action="store_true", help="print JSON, with the course over time")
    made.add_argument(
        "--plot",
        metavar="FILE",
        help="draw latencies, queue and cache hits to FILE (.svg, .png or .pdf; needs"
        " pagemill[plot])",
    )
    made.add_config(SimulateConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Runs the simulation and prints its report."""
    config = parser.read(SimulateConfig, args)
    if args.plot is not None:
        from pagemill.simulation.plot import check_plot

        check_plot(args.plot)
    from pagemill.simulation.build import build_simulation
    from pagemill.simulation.report import series_json, summarize, table

    simulation = build_simulation(config)
    found = _run(simulation.simulator, simulation.num_requests)
    report = summarize(found)
    if args.json:
        whole: dict[str, Any] = {"simulated": simulation.description, **report}
        print(json.dumps({**whole, "series": series_json(found)}, indent=2))
    else:
        print(f"{simulation.description}\n\n{table(report)}")
    if args.plot is not None:
        from pagemill.simulation.plot import plot

        plot(found, simulation.description, args.plot)
    return 0


def _run(simulator: Any, num_requests: int) -> dict[str, Any]:
    from pagemill.engine.progress_bar import ProgressBar

    bar = ProgressBar(num_requests, sys.stderr)
    ended = 0
    while not simulator.done:
        simulator.run(max(1, num_requests // 200))
        bar.add(tokens=0, finished=simulator.num_ended - ended)
        ended = simulator.num_ended
    bar.close()
    return simulator.report()
