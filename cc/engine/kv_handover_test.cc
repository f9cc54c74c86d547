// One engine computes prompts, another one generates: their KV goes by shared memory, or by TCP.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/engine/testing/fake_runner.h"
#include "cc/engine/testing/fake_runner_control.h"
#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using step::FakeModel;
using step::KvTransferParams;
using step::Request;
using step::RequestId;

struct TestEngine {
  explicit TestEngine(int64_t shared_memory_bytes = 1 << 20, std::string model = "a",
                      int64_t timeout_ms = 10'000)
      : TestEngine({.shared_memory_bytes = shared_memory_bytes,
                    .transfer_timeout_ms = timeout_ms,
                    .fingerprint = [model] { return model; }}) {}
  explicit TestEngine(const KvTierOptions& kv_tiers) {
    EngineOptions options;
    options.check_integrity = true;
    options.kv_tiers = kv_tiers;
    auto made = Engine::Create(options, &runner, &clock, {});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    engine = std::move(*made);
  }

  RequestOutput Run(Request request) {
    EXPECT_EQ(engine->Submit(std::move(request)), OkStatus());
    RequestOutput all;
    while (!all.finished()) {
      for (RequestOutput& output : engine->Wait(60)) {
        auto tokens = std::move(all.new_token_ids);
        tokens.insert(tokens.end(), output.new_token_ids.begin(), output.new_token_ids.end());
        all = std::move(output);
        all.new_token_ids = std::move(tokens);
      }
    }
    return all;
  }
  int64_t NumUsedBlocks() const { return engine->stats().kv_blocks_used; }
  void WaitUntil(const std::function<bool()>& done) const {
    for (int i = 0; i < 6000 && !done(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(done());
  }

  FakeRunnerControl control;
  FakeRunner runner{FakeRunner::DefaultLimits(), &control};
  SteadyClock clock;
  std::unique_ptr<Engine> engine;
};

Request Prompt(uint64_t id, int32_t max_tokens, KvTransferParams params) {
  Request request;
  request.id = RequestId(id);
  for (int32_t i = 0; i < 33; ++i) request.prompt_token_ids.push_back((i * 5 + 7) % 97);
  request.sampling.max_tokens = max_tokens;
  request.kv_transfer_params = std::move(params);
  return request;
}

std::vector<int32_t> Expected(int32_t max_tokens) {
  return FakeModel::Continue(Prompt(1, 1, {}).prompt_token_ids.ToVector(),
                             static_cast<size_t>(max_tokens), 97);
}

const KvTransferParams kSend = {{"do_remote_decode", "true"}};

TEST(KvHandover, OneEngineComputesThePromptAndAnotherOneGenerates) {
  TestEngine prefill, decode;
  const RequestOutput first = prefill.Run(Prompt(1, 1, kSend));
  EXPECT_EQ(first.kv_transfer_params.at("do_remote_prefill"), "true");
  const RequestOutput output = decode.Run(Prompt(5, 6, first.kv_transfer_params));
  EXPECT_EQ(output.new_token_ids, Expected(6));
  EXPECT_EQ(output.num_cached_tokens, 32);
  EXPECT_TRUE(output.kv_transfer_params.empty());
  EXPECT_EQ(decode.engine->stats().kv_loaded_tokens, 32u);
  prefill.WaitUntil([&] { return prefill.NumUsedBlocks() == 0; });
  EXPECT_EQ(prefill.engine->stats().kv_blocks_stored, 8u);
}

TEST(KvHandover, WithoutTheOtherEngineThePromptIsComputed) {
  auto prefill = std::make_unique<TestEngine>();
  TestEngine decode, other(1 << 20, "another model");
  const KvTransferParams params = prefill->Run(Prompt(1, 1, kSend)).kv_transfer_params;
  EXPECT_EQ(other.Run(Prompt(1, 6, params)).num_cached_tokens, 0);
  prefill.reset();
  const RequestOutput output = decode.Run(Prompt(1, 6, params));
  EXPECT_EQ(output.new_token_ids, Expected(6));
  EXPECT_EQ(output.num_cached_tokens, 0);
  EXPECT_EQ(decode.engine->stats().num_failed_kv_loads, 1u);
}

TEST(KvHandover, ParametersThatMakeNoSenseAreIgnored) {
  TestEngine decode;
  const std::vector<KvTransferParams> senseless = {
      {{"do_remote_prefill", "true"}},
      {{"do_remote_prefill", "true"}, {"remote_engine_id", "../x"}, {"remote_request_id", "1"}},
      {{"do_remote_prefill", "true"},
       {"remote_engine_id", std::string(32, 'a')},
       {"remote_request_id", "-1"}},
      {{"remote_engine_id", std::string(32, 'a')}, {"remote_request_id", "1"}},
  };
  for (const KvTransferParams& params : senseless) {
    EXPECT_EQ(decode.Run(Prompt(1, 3, params)).new_token_ids, Expected(3));
    EXPECT_TRUE(decode.engine->ResetPrefixCache());
  }
  EXPECT_EQ(decode.engine->stats().num_kv_lookups, 0u);
}

TEST(KvHandover, HeldBlocksAreReleasedWhenNoEngineTakesThem) {
  // Room for a few blocks of 8: the rest is held.
  TestEngine prefill(5000, "a", /*timeout_ms=*/1000);
  EXPECT_FALSE(prefill.Run(Prompt(1, 1, kSend)).kv_transfer_params.empty());
  EXPECT_GT(prefill.NumUsedBlocks(), 0);
  prefill.WaitUntil([&] { return prefill.NumUsedBlocks() == 0; });
  EXPECT_EQ(prefill.Run(Prompt(2, 6, {})).new_token_ids, Expected(6));
}

// An engine on another machine.
KvTierOptions Remote() {
  return {.shared_memory_bytes = 1 << 20,
          .transfer_secret = "what both engines know",
          .fingerprint = [] { return std::string("a"); }};
}

KvTierOptions Listens() {
  KvTierOptions options = Remote();
  options.transfer_listen = "127.0.0.1:0";
  return options;
}

KvTierOptions LoadsFrom(const KvTransferParams& params) {
  KvTierOptions options = Remote();
  options.transfer_peers = {params.at("remote_host") + ":" + params.at("remote_port")};
  return options;
}

TEST(KvHandover, KvComesFromAnotherMachine) {
  TestEngine prefill(Listens());
  const KvTransferParams params = prefill.Run(Prompt(1, 1, kSend)).kv_transfer_params;
  EXPECT_EQ(params.at("remote_host"), "127.0.0.1");
  TestEngine decode(LoadsFrom(params));
  const RequestOutput output = decode.Run(Prompt(5, 6, params));
  EXPECT_EQ(output.new_token_ids, Expected(6));
  EXPECT_EQ(output.num_cached_tokens, 32);
  EXPECT_EQ(decode.engine->stats().kv_loaded_tokens, 32u);
  prefill.WaitUntil([&] { return prefill.NumUsedBlocks() == 0; });
}

TEST(KvHandover, WithoutTheOtherMachineThePromptIsComputed) {
  const auto expect_computed = [](const KvTierOptions& options, const KvTransferParams& params) {
    TestEngine decode(options);
    const RequestOutput output = decode.Run(Prompt(1, 6, params));
    EXPECT_EQ(output.new_token_ids, Expected(6));
    EXPECT_EQ(output.num_cached_tokens, 0);
    EXPECT_EQ(decode.engine->stats().num_failed_kv_loads, 1u);
  };
  auto prefill = std::make_unique<TestEngine>(Listens());
  const KvTransferParams params = prefill->Run(Prompt(1, 1, kSend)).kv_transfer_params;
  KvTierOptions options = LoadsFrom(params);
  options.transfer_secret = "what another engine knows";
  expect_computed(options, params);
  options = LoadsFrom(params);
  options.fingerprint = [] { return std::string("another model"); };
  expect_computed(options, params);
  KvTransferParams of_another_engine = params;
  of_another_engine["remote_engine_id"] = std::string(32, 'a');
  expect_computed(LoadsFrom(params), of_another_engine);
  expect_computed(Remote(), of_another_engine);
  prefill.reset();
  expect_computed(LoadsFrom(params), params);
}

TEST(KvHandover, OptionsOfOtherMachinesAreChecked) {
  const auto refusal = [](const KvTierOptions& options) {
    const Status status = options.Validate();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  const auto names = [](const std::string& message, const std::string& flag) {
    EXPECT_NE(message.find(flag), std::string::npos) << message;
  };
  EXPECT_EQ(Listens().Validate(), OkStatus());
  KvTierOptions options = Listens();
  options.transfer_secret = "short";
  names(refusal(options), "--kv-transfer-secret-file");
  options = Listens();
  options.shared_memory_bytes = 0;
  names(refusal(options), "--kv-shared-memory-bytes");
  for (const std::string listen : {"localhost:80", "127.0.0.1", "0.0.0.0:80", "[::]:80"}) {
    options.transfer_listen = listen;
    names(refusal(options), "--kv-transfer-listen");
  }
  for (const std::string peer : {"peer:80", "127.0.0.1:0"}) {
    options = Remote();
    options.transfer_peers = {"127.0.0.1:80", peer};
    names(refusal(options), "--kv-transfer-peers");
  }
}

TEST(KvHandover, WeightsThatNameKvForOthersStay) {
  TestEngine prefill;
  const Status status = prefill.engine->UpdateWeights({}, 10);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("--kv-shared-memory-bytes"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::engine
