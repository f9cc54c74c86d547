#include "cc/sim/simulator.h"

#include <memory>
#include <optional>

#include "cc/sim/synthetic_workload.h"
#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

SimulatorOptions Options(int32_t num_engines) {
  SimulatorOptions options;
  options.num_engines = num_engines;
  options.model = {2, 64, 4, 2, 16, 128, 3, 1000, 0, 16};
  options.device.peak_flops = 1000000000000;
  options.device.bandwidth_bytes = 10000000000;
  options.device.step_overhead_ns = 100000;
  options.scheduler.max_num_tokens = 256;
  options.scheduler.max_num_seqs = 16;
  options.scheduler.vocab_size = 1000;
  options.scheduler.max_model_len = 2048;
  options.scheduler.kv_cache.num_blocks = 257;
  return options;
}

SyntheticOptions Load(int64_t num_requests) {
  SyntheticOptions load;
  load.num_requests = num_requests;
  load.vocab_size = 1000;
  load.arrivals.mean_gap_ns = 1000000;
  load.prompt = {"lognormal", 100, 700, 1000};
  load.output = {"lognormal", 20, 700, 200};
  load.max_context_tokens = 2000;
  return load;
}

std::unique_ptr<Simulator> Make(const SimulatorOptions& options, const SyntheticOptions& load) {
  EXPECT_TRUE(load.Validate().ok());
  auto simulator = Simulator::Create(options, std::make_unique<SyntheticWorkload>(load));
  EXPECT_TRUE(simulator.ok()) << simulator.status().message();
  return *std::move(simulator);
}

void RunChecked(Simulator* simulator) {
  while (!simulator->done()) {
    const Status status = simulator->Run(10);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(simulator->CheckIntegrity().ok()) << simulator->CheckIntegrity().message();
  }
}

TEST(Simulator, EveryRequestEndsAndEveryTokenIsCounted) {
  auto simulator = Make(Options(3), Load(300));
  RunChecked(simulator.get());
  const Report& report = simulator->report();
  EXPECT_EQ(report.num_finished, 300u);
  EXPECT_EQ(report.num_refused, 0u);
  EXPECT_EQ(report.num_failed, 0u);
  EXPECT_EQ(report.ttft.count(), 300u);
  EXPECT_EQ(report.e2e.count(), 300u);
  EXPECT_EQ(report.itl.count(), report.generated_tokens - 300);
  EXPECT_LE(report.queueing.Quantile(500), report.ttft.Quantile(500));
  EXPECT_LE(report.ttft.Quantile(500), report.e2e.Quantile(500));
  EXPECT_LE(report.most_busy_ns, report.duration_ns);
  EXPECT_LE(report.least_busy_ns, report.most_busy_ns);
}

TEST(Simulator, StepsWithStreamsKeepToALimit) {
  SimulatorOptions options = Options(1);
  options.device.peak_flops = 1000000000;  // about 0.15 ms a token
  SyntheticOptions load = Load(200);
  load.concurrency = 8;
  int64_t p99_ns[3];
  const std::optional<int64_t> limits[] = {0, 10000, std::nullopt};
  for (int i = 0; i < 3; ++i) {
    options.max_step_us = limits[i];
    auto simulator = Make(options, load);
    RunChecked(simulator.get());
    p99_ns[i] = simulator->report().itl.Quantile(990);
  }
  EXPECT_GT(p99_ns[0], 25'000'000);
  EXPECT_LT(p99_ns[1], 13'000'000);
  EXPECT_LT(p99_ns[2], 16'000'000);
  options.max_step_us = -1;
  EXPECT_FALSE(options.Validate().ok());
}

// One request of 4 tokens of output: one step for the prompt, three for the other tokens.
TEST(Simulator, OneRequestTakesTheTimeOfItsSteps) {
  SimulatorOptions options = Options(1);
  SyntheticOptions load = Load(1);
  load.prompt = {"fixed", 10, 0, 1000};
  load.output = {"fixed", 4, 0, 1000};
  load.concurrency = 1;
  auto simulator = Make(options, load);
  RunChecked(simulator.get());
  const Report& report = simulator->report();
  EXPECT_EQ(report.num_steps, 4u);
  EXPECT_EQ(report.step_tokens, 13u);
  EXPECT_EQ(report.queueing.max(), 0);
  EXPECT_EQ(report.e2e.max(), report.busy_ns);
  EXPECT_EQ(report.duration_ns, report.busy_ns);
  EXPECT_EQ(report.ttft.max() + 3 * report.itl.mean(), report.e2e.max());
}

TEST(Simulator, ASmallPoolPreemptsAndStillFinishes) {
  SimulatorOptions options = Options(1);
  options.scheduler.kv_cache.num_blocks = 40;
  SyntheticOptions load = Load(60);
  load.prompt = {"fixed", 60, 0, 1000};
  load.output = {"fixed", 100, 0, 200};
  auto simulator = Make(options, load);
  RunChecked(simulator.get());
  EXPECT_EQ(simulator->report().num_finished, 60u);
  EXPECT_EQ(simulator->report().generated_tokens, 6000u);
  EXPECT_GT(simulator->report().preemptions, 0u);
}

TEST(Simulator, AFullQueueRefuses) {
  SimulatorOptions options = Options(1);
  options.scheduler.max_waiting_requests = 2;
  SyntheticOptions load = Load(500);
  load.arrivals.mean_gap_ns = 1000;
  auto simulator = Make(options, load);
  RunChecked(simulator.get());
  EXPECT_GT(simulator->report().num_refused, 100u);
  EXPECT_EQ(simulator->report().num_refused + simulator->report().num_finished, 500u);
}

TEST(Simulator, ConversationsHitThePrefixCache) {
  SyntheticOptions load = Load(200);
  load.mean_turns = 6;
  load.mean_think_ns = 1000000;
  load.concurrency = 2;
  auto simulator = Make(Options(1), load);
  RunChecked(simulator.get());
  const Report& report = simulator->report();
  EXPECT_GT(report.cached_tokens * 2, report.prompt_tokens);

  SimulatorOptions without = Options(1);
  without.scheduler.kv_cache.enable_prefix_caching = false;
  simulator = Make(without, load);
  RunChecked(simulator.get());
  EXPECT_EQ(simulator->report().cached_tokens, 0u);
}

TEST(Simulator, PrefixAwareRoutingHitsMoreThanTurns) {
  SyntheticOptions load = Load(400);
  load.num_prefixes = 16;
  load.prefix_tokens = 256;
  load.arrivals.mean_gap_ns = 3000000;
  uint64_t cached[2];
  for (int i = 0; i < 2; ++i) {
    SimulatorOptions options = Options(8);
    options.routing = i == 0 ? "round_robin" : "prefix_aware";
    auto simulator = Make(options, load);
    RunChecked(simulator.get());
    cached[i] = simulator->report().cached_tokens;
  }
  EXPECT_GT(cached[1], cached[0] * 5 / 4);
}

TEST(Simulator, StoppingBetweenRequestsChangesNothing) {
  auto whole = Make(Options(2), Load(100));
  ASSERT_TRUE(whole->Run(1000).ok());
  auto parts = Make(Options(2), Load(100));
  RunChecked(parts.get());
  EXPECT_EQ(whole->report().ToText(), parts->report().ToText());
}

TEST(Simulator, RefusesImpossibleOptions) {
  SimulatorOptions options = Options(0);
  auto workload = [] { return std::make_unique<SyntheticWorkload>(Load(1)); };
  EXPECT_NE(Simulator::Create(options, workload()).status().message().find("num_engines is 0"),
            std::string::npos);
  options = Options(1);
  options.routing = "nearest";
  EXPECT_FALSE(Simulator::Create(options, workload()).ok());
  options = Options(1);
  options.device.peak_flops = 0;
  EXPECT_FALSE(Simulator::Create(options, workload()).ok());
}

}  // namespace
}  // namespace pagemill::sim
