"""A server over the fake engine and the fake renderer, for tests of the HTTP contract."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

import httpx
from starlette.types import ASGIApp

from pagemill.config import (
    BatchApiConfig,
    ConnectionConfig,
    ContentLogConfig,
    OriginConfig,
    ServeConfig,
    ServerConfig,
    TlsConfig,
    flatten,
)
from pagemill.engine.async_engine import AsyncEngine
from pagemill.engine.local_client import LocalClient
from pagemill.engine.messages import ModelFacts
from pagemill.engine.sampling import SamplingDefaults
from pagemill.engine.testing.fake_engine import FakeEngine, fake_bindings
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.inputs.task import Pooled, Task
from pagemill.observe.metrics import MetricsOptions, RequestMetrics
from pagemill.server.access.key_ring import KeyRing
from pagemill.server.access.keys import ApiKey, plain_keys
from pagemill.server.app import create_app
from pagemill.server.media import Media
from pagemill.server.model_info import ModelInfo
from pagemill.server.pipeline import Pipeline
from pagemill.server.records.record import OnEnd
from pagemill.server.speech.speech import Speech
from pagemill.server.state import ServerState
from pagemill.server.testing.fake_encoder import fake_encoder
from pagemill.server.testing.fake_renderer import FakeRenderer
from pagemill.server.testing.fake_speech import FakeMedia
from pagemill.server.tools.servers import ToolServers
from pagemill.server.tools.tool import ToolServer
from pagemill.structured.compiler import GrammarCompiler
from pagemill.structured.vocabulary import Vocabulary

EOS = 0


@dataclass(frozen=True, slots=True)
class FakeServer:
    """The parts of a running fake, and a client of its app."""

    client: httpx.AsyncClient
    app: ASGIApp
    state: ServerState
    engine: FakeEngine
    async_engine: AsyncEngine
    renderer: FakeRenderer


async def make_pipeline(
    engine: FakeEngine,
    *,
    pooled: Pooled | None = None,
    alignment: tuple[int, int] | None = None,
    max_model_len: int = 256,
    renderer: FakeRenderer | None = None,
    observed: MetricsOptions | None = None,
    max_unfinished: int = 2048,
    speech: Speech | None = None,
    media: Media | None = None,
) -> Pipeline:
    """The pipeline over `engine`; its AsyncEngine is started on the running loop. With `speech` the
    model transcribes, and does nothing else unless there is `media` of messages."""
    facts = ModelFacts(
        names=("fake", "alias"),
        path="",
        max_model_len=max_model_len,
        vocab_size=256,
        max_unfinished=max_unfinished,
        routed_experts=(2, 1),
    )
    renderer = renderer or FakeRenderer()
    bindings, tokenizer = fake_bindings(engine), renderer.tokenizer
    grammars = GrammarCompiler(lambda: Vocabulary(tokenizer, 256, (EOS,)))
    bindings.grammars.open_vocabulary = grammars.open_vocabulary
    async_engine = AsyncEngine(LocalClient(bindings, facts), [EOS])
    await async_engine.start()
    model = ModelInfo(
        names=("fake", "alias"),
        max_model_len=max_model_len,
        vocab_size=256,
        pooled=pooled,
        created=1700000000,
        defaults=SamplingDefaults(),
        fingerprint="fp_fake",
        generates=_generates(speech, media),
        alignment=alignment,
    )
    metrics = RequestMetrics("fake", max_model_len, observed)
    if media is None and speech is not None:
        media = FakeMedia()
    encoding = None
    if pooled is not None and pooled.task is Task.MEDIA_EMBED:
        media, encoding = fake_encoder()
    pipeline = Pipeline(async_engine, renderer, model, metrics, grammars, media)
    pipeline.speech, pipeline.media_encoding = speech, encoding
    return pipeline


def _generates(speech: Speech | None, media: Media | None) -> frozenset[Task]:
    if speech is None:
        return frozenset({Task.GENERATE})
    return frozenset({Task.TRANSCRIBE} if media is None else {Task.GENERATE, Task.TRANSCRIBE})


def _pooled(options: FakeOptions) -> Pooled | None:
    size, task = options.pooled_size, options.task
    labels = tuple(f"LABEL_{i}" for i in range(size)) if task.classifies else ()
    return Pooled(task=task, width=size, labels=labels) if size else None


def script(output: str) -> Callable[[int, int, int], int]:
    """`FakeOptions.next_token` of a model that always writes `output`."""
    token_ids = [*output.encode(), EOS]
    return lambda previous, position, seed: token_ids[min(position, len(token_ids) - 1)]


def turns(*outputs: str) -> FakeOptions:
    """A model that writes the next of `outputs` for each request, and then always the last one."""
    written = [[*output.encode(), EOS] for output in outputs]
    turn = -1

    def next_token(previous: int, position: int, seed: int) -> int:
        nonlocal turn
        turn += position == 0
        tokens = written[min(turn, len(written) - 1)]
        return tokens[min(position, len(tokens) - 1)]

    return FakeOptions(next_token=next_token)


@contextlib.asynccontextmanager
async def fake_server(
    options: FakeOptions | None = None,
    *,
    api_keys: Sequence[str] = (),
    keys: Sequence[ApiKey] = (),
    ring: KeyRing | None = None,
    trust_tenant_header: bool = False,
    origins: OriginConfig | None = None,
    loaded: bool = True,
    renderer: FakeRenderer | None = None,
    max_model_len: int = 256,
    max_unfinished: int = 2048,
    response_store: str | None = None,
    batches: BatchApiConfig | None = None,
    observed: MetricsOptions | None = None,
    per_request_metrics: bool = False,
    request_timeout: float = 0.0,
    realtime_idle_timeout: float = 300.0,
    root_path: str = "",
    middleware: Sequence[str] = (),
    playground: bool = True,
    listeners: Sequence[OnEnd] = (),
    connections: ConnectionConfig | None = None,
    tls: TlsConfig | None = None,
    tools: Sequence[ToolServer] = (),
    content_log: ContentLogConfig | None = None,
    speech: Speech | None = None,
    media: Media | None = None,
) -> AsyncGenerator[FakeServer, None]:
    """Runs a server in this process; `loaded` False leaves it in its loading phase."""
    options = options or FakeOptions()
    engine = FakeEngine(options)
    config = ServerConfig(
        max_body_bytes=100_000,
        origins=origins or OriginConfig(),
        trust_tenant_header=trust_tenant_header,
        enable_per_request_metrics=per_request_metrics,
        playground=playground,
        realtime_idle_timeout=realtime_idle_timeout,
        root_path=root_path,
        middleware=tuple(middleware),
        engine_stuck_timeout=5.0,
        request_timeout=request_timeout,
        response_store=response_store,
        connections=connections or ConnectionConfig(),
        tls=tls or TlsConfig(),
        batches=batches or BatchApiConfig(),
        content_log=content_log or ContentLogConfig(),
    )
    settings = flatten(ServeConfig(server=config))
    state = ServerState(config, settings=settings, tools=ToolServers(tools))
    renderer = renderer or FakeRenderer()
    pipeline = await make_pipeline(
        engine,
        pooled=_pooled(options),
        alignment=options.alignment,
        max_model_len=max_model_len,
        renderer=renderer,
        observed=observed,
        max_unfinished=max_unfinished,
        speech=speech,
        media=media,
    )
    if loaded:
        state.serve(pipeline, engine.stats)
    ring = ring or KeyRing(keys or plain_keys(api_keys))
    app = create_app(state, ring, listeners=listeners)
    transport = httpx.ASGITransport(app)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://fake") as client:
            yield FakeServer(client, app, state, engine, pipeline.engine, renderer)
    finally:
        await pipeline.engine.shutdown()
        await state.close()
        engine.shutdown()
