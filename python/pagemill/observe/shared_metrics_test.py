"""Counts of several processes of one server."""

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pagemill.observe.restarts import RestartCounts

_PROCESS = """
import sys
from pagemill.observe.metrics import ChoiceTimes, MetricsOptions, RequestMetrics, TenantUsage
metrics = RequestMetrics("m", 100, MetricsOptions(sys.argv[1], True, 2))
metrics.inter_token_latency.observe(0.03)
metrics.inter_token_latency.observe(0.0005)
metrics.choice_ended("stop", 3, ChoiceTimes(1.0, 0.5))
for tenant in ("a", "b", "c"):
    metrics.tenant_served(tenant, "k", TenantUsage(1, 2, 0.5))
sys.stdout.buffer.write(metrics.render())
"""


def _run(folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, str(folder)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
    )
    return {
        sample.name + "".join(f",{key}={value}" for key, value in sorted(sample.labels.items())): (
            sample.value
        )
        for family in text_string_to_metric_families(done.stdout)
        for sample in family.samples
    }


def test_counts_are_those_of_all_processes(tmp_path: Path) -> None:
    RestartCounts(str(tmp_path)).add("engine")
    _run(tmp_path)
    found = _run(tmp_path)
    of_model = ",engine=0,model_name=m"
    for prefix in ("pagemill", "vllm"):
        latency = f"{prefix}:inter_token_latency_seconds"
        assert found[f"{latency}_count{of_model}"] == 4
        assert found[f"{latency}_bucket,engine=0,le=0.001,model_name=m"] == 2
        assert found[f"{latency}_bucket,engine=0,le=0.05,model_name=m"] == 4
        success = f"{prefix}:request_success_total,engine=0,finished_reason=stop,model_name=m"
        assert found[success] == 2
    tenants = {name: value for name, value in found.items() if "tenant_requests_total" in name}
    of_tenant = "pagemill:tenant_requests_total,engine=0,key={},model_name=m,tenant={}"
    assert tenants == {
        of_tenant.format("k", "a"): 2,
        of_tenant.format("k", "b"): 2,
        of_tenant.format("other", "other"): 2,
    }
    assert found["pagemill:process_restarts_total,process=engine"] == 1
    assert found["pagemill:process_restarts_total,process=api"] == 0
