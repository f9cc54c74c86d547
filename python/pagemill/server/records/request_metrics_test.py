"""What requests leave in `/metrics`."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pagemill.engine.sampling import SamplingDefaults
from pagemill.engine.testing.fake_model import FakeOptions
from pagemill.observe.catalog import catalog
from pagemill.observe.metrics import MetricsOptions
from pagemill.server.access.caller import Caller
from pagemill.server.access.keys import ApiKey
from pagemill.server.testing.fake_server import FakeServer, fake_server

_SCRAPE = {"x-api-key": "k1"}
_KEYS = [ApiKey.of(f"k{i}", Caller(f"key{i}", f"tenant{i}")) for i in (1, 2, 3)]


async def scrape(server: FakeServer) -> dict[str, float]:
    """Samples by name and those labels that are not of the model."""
    text = (await server.client.get("/metrics", headers=_SCRAPE)).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sorted(set(sample.labels) - {"model_name", "engine"})
            found[",".join([sample.name, *(sample.labels[name] for name in labels)])] = sample.value
    return found


def test_a_request_is_counted_in_every_family() -> None:
    async def body() -> None:
        async with fake_server() as server:
            payload = {"prompt": [[97, 98], [99]], "n": 2, "max_tokens": 3, "ignore_eos": True}
            assert (await server.client.post("/v1/completions", json=payload)).status_code == 200
            found = await scrape(server)
            for name, count in (
                ("time_to_first_token_seconds", 4),
                ("inter_token_latency_seconds", 8),
                ("request_time_per_output_token_seconds", 4),
                ("request_inference_time_seconds", 4),
                ("request_prompt_tokens", 2),
                ("request_params_n", 2),
                ("request_params_max_tokens", 2),
                ("request_max_num_generation_tokens", 2),
                ("request_prefill_kv_computed_tokens", 2),
            ):
                assert found[f"pagemill:{name}_count"] == count, name
            assert found["pagemill:request_params_max_tokens_sum"] == 6
            assert found["pagemill:request_max_num_generation_tokens_sum"] == 6
            assert found["pagemill:tenant_requests_total,,"] == 1
            assert found["pagemill:tenant_prompt_tokens_total,,"] == 3
            assert found["pagemill:tenant_generation_tokens_total,,"] == 12
            requests = "pagemill:http_requests_total,/v1/completions,POST,2xx"
            assert found[requests] == 1
            duration = "pagemill:http_request_duration_seconds_count,/v1/completions,POST"
            assert found[duration] == 1

    asyncio.run(body())


def test_watermarks_are_counted_where_there_are_some() -> None:
    async def body() -> None:
        async with fake_server() as server:
            payload = {"prompt": "ab", "max_tokens": 2}
            await server.client.post("/v1/completions", json=payload)
            name = "pagemill:watermark_requests_total"
            assert not any(each.startswith(name) for each in await scrape(server))
            pipeline = server.state.loaded
            assert pipeline is not None
            pipeline.model = replace(pipeline.model, defaults=SamplingDefaults(watermarks=True))
            for fields in (
                {},
                {"watermarking": True, "n": 2, "prompt": ["a", "b"]},
                {"watermarking": False},
                {"temperature": 0},
                {"use_beam_search": True, "watermarking": False},
            ):
                answer = await server.client.post("/v1/completions", json={**payload, **fields})
                assert answer.status_code == 200, answer.text
            found = await scrape(server)
            counts = {each: found[each] for each in found if each.startswith(name)}
            assert counts == {
                f"{name},watermarked": 2,
                f"{name},skipped": 1,
                f"{name},not_watermarked": 2,
            }

    asyncio.run(body())


@pytest.mark.parametrize("streamed", [False, True])
def test_tenants_have_their_own_counts_up_to_a_bound(streamed: bool) -> None:
    async def body() -> None:
        observed = MetricsOptions(max_tenants=2)
        async with fake_server(keys=_KEYS, observed=observed) as server:
            for key in ("k1", "k2", "k3", "k1"):
                payload = {"prompt": "ab", "max_tokens": 5, "ignore_eos": True, "stream": streamed}
                await server.client.post(
                    "/v1/completions", json=payload, headers={"x-api-key": key}
                )
            found = await scrape(server)
            names = {"key1,tenant1": 2, "key2,tenant2": 1, "other,other": 1}
            for labels, count in names.items():
                assert found[f"pagemill:tenant_requests_total,{labels}"] == count
                assert found[f"pagemill:tenant_prompt_tokens_total,{labels}"] == 2 * count
                assert found[f"pagemill:tenant_generation_tokens_total,{labels}"] == 5 * count
                first_token = "pagemill:tenant_time_to_first_token_seconds_count"
                assert found[f"{first_token},{labels}"] == count
            assert found["pagemill:http_responses_total,key2,/v1/completions,200"] == 1
            assert found["pagemill:http_responses_total,other,/v1/completions,200"] == 1

    asyncio.run(body())


def test_tenants_of_a_trusted_header_are_bounded() -> None:
    async def body() -> None:
        observed = MetricsOptions(max_tenants=3)
        async with fake_server(trust_tenant_header=True, observed=observed) as server:
            for index in range(10):
                await server.client.post(
                    "/v1/completions",
                    json={"prompt": "a", "max_tokens": 1},
                    headers={"x-tenant-id": f"t{index}"},
                )
            found = await scrape(server)
            tenants = [name for name in found if name.startswith("pagemill:tenant_requests_total")]
            assert len(tenants) == 4
            assert found["pagemill:tenant_requests_total,other,other"] == 7

    asyncio.run(body())


def test_refusals_are_counted_under_fixed_labels() -> None:
    async def body() -> None:
        async with fake_server(keys=_KEYS) as server:
            assert (await server.client.get("/version")).status_code == 401
            for index in range(3):
                got = await server.client.get(f"/nope/{index}", headers=_SCRAPE)
                assert got.status_code == 404
            assert (await server.client.request("BREW", "/version")).status_code == 401
            found = await scrape(server)
            assert found["pagemill:http_responses_total,,none,401"] == 2
            assert found["pagemill:http_responses_total,key1,none,404"] == 3
            assert found["pagemill:http_requests_total,none,GET,4xx"] == 4
            assert found["pagemill:http_requests_total,none,other,4xx"] == 1

    asyncio.run(body())


def test_embeddings_count_for_their_tenant() -> None:
    async def body() -> None:
        async with fake_server(FakeOptions(pooled_size=4), keys=_KEYS) as server:
            await server.client.post("/v1/embeddings", json={"input": ["ab", "c"]}, headers=_SCRAPE)
            found = await scrape(server)
            assert found["pagemill:tenant_prompt_tokens_total,key1,tenant1"] == 3
            assert found["pagemill:tenant_generation_tokens_total,key1,tenant1"] == 0

    asyncio.run(body())


def test_grammars_are_counted_by_outcome() -> None:
    async def body() -> None:
        async with fake_server() as server:
            # The fake engine takes no grammar; before it refuses one, the front end compiles it.
            for pattern in ("[ab]", "[ab]", "["):
                payload = {"prompt": "a", "max_tokens": 2, "structured_outputs": {"regex": pattern}}
                await server.client.post("/v1/completions", json=payload)
            found = await scrape(server)
            for outcome in ("compiled", "kept", "refused"):
                assert found[f"pagemill:grammar_requests_total,{outcome}"] == 1
            assert found["pagemill:grammar_compile_seconds_count"] == 1

    asyncio.run(body())


def test_names_of_the_reference_system() -> None:
    async def body() -> None:
        payload = {"prompt": "a", "max_tokens": 2}
        async with fake_server() as server:
            await server.client.post("/v1/completions", json=payload)
            assert not [
                name
                for name in await scrape(server)
                if not name.startswith("pagemill:") and not name.startswith(("python_", "process_"))
            ]
        async with fake_server(observed=MetricsOptions(reference_names=True)) as server:
            await server.client.post("/v1/completions", json=payload)
            found = await scrape(server)
            rows = [row for row in catalog(server.engine.stats().fields) if row.reference]
            assert len(rows) > 20
            own = {name.partition(",")[0] for name in found}
            missing = {
                row.name
                for row in rows
                for series in row.series
                if row.reference + series.removeprefix(row.name) not in own
            }
            # Those of adapters, of images, of watermarks and of a model's work have samples where
            # the server has them, and places of drafts once one was accepted there.
            assert missing == {
                "estimated_flops",
                "estimated_read_bytes",
                "lora_requests_info",
                "mm_cache_hits",
                "mm_cache_queries",
                "spec_decode_num_accepted_tokens_per_pos",
                "watermark_requests",
            }
            assert found["vllm:generation_tokens_total"] == 2
            assert found["vllm:request_success_total,length"] == 1
            assert found["vllm:time_to_first_token_seconds_bucket,+Inf"] == 1
            assert found["vllm:engine_sleep_state,awake"] == 1
            assert found["http_requests_total,/v1/completions,POST,2xx"] == 1

    asyncio.run(body())


def test_the_catalog_has_what_is_exposed() -> None:
    async def body() -> None:
        async with fake_server() as server:
            await server.client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1})
            text = (await server.client.get("/metrics")).text
            entries = {row.name: row for row in catalog(server.engine.stats().fields)}
            for family in text_string_to_metric_families(text):
                if not family.name.startswith("pagemill:") or family.name.endswith("_created"):
                    continue
                entry = entries[family.name.removeprefix("pagemill:")]
                assert entry.kind == family.type
                for sample in family.samples:
                    assert set(entry.labels) <= set(sample.labels), family.name

    asyncio.run(body())
