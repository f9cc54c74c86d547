// Closeness to the reference over head dimensions, groups, block sizes, windows, bidirectional and
// capped scores, with all memory that a query must not read poisoned; the same bits with 1 to 3
// threads. Invariance: a prompt in one step, in chunks of 64 and token by token, alone and among
// 31 other requests: each query's output has the same bits.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/paged_attention/attention_case.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {
namespace {

using conformance::AttentionCase;
using conformance::AttentionOptions;
using conformance::BitEqual;
using conformance::PagedRequest;

// The contract's bound: scores have variance 1 and stay below 6, values below 1.75.
constexpr double kLargestValue = 1.75;
constexpr conformance::Tolerance kTolerance{.abs = 4e-6 * (1 + 6) * kLargestValue};
constexpr conformance::Tolerance kRoundedTolerance{.abs = kTolerance.abs +
                                                          kPagedAttentionRounding * kLargestValue};

// All kernels except the reference, which computes query by query on one thread.
std::vector<const Kernel*> Kernels(const OpDefinition& op, const device::Capabilities& caps,
                                   const OpCall& call) {
  std::vector<const Kernel*> kernels = conformance::SupportedKernels(op, caps, call);
  std::erase(kernels, &conformance::ReferenceKernel(op));
  return kernels;
}

bool Rounds(const Kernel* kernel) { return kernel->activations != Precision::kF32; }

// The case with queries that are rounded beforehand, for kernels that round them.
AttentionOptions Rounded(AttentionOptions options) {
  options.round_queries = !HasKvScales(options.dtype);
  return options;
}

// With equal scores nothing is rounded, so that a missing or extra key is detected.
void CheckEqualScores(const OpDefinition& op, const std::vector<const Kernel*>& kernels,
                      AttentionOptions options, const std::vector<PagedRequest>& requests) {
  const bool are_equal = !options.slopes && options.bias_reach < 0;
  // With scaled values, weights times scales are rounded.
  if (!are_equal || HasKvScales(options.dtype) || std::ranges::none_of(kernels, Rounds)) return;
  options.zero_queries = true;
  AttentionCase c(Rounded(options), requests);
  device::ThreadPool one({.num_threads = 1});
  const std::vector<float> expected = c.Run(conformance::ReferenceKernel(op), one);
  for (const Kernel* kernel : kernels) {
    if (!Rounds(kernel)) continue;
    EXPECT_TRUE(AllClose(c.Run(*kernel, one), expected, kTolerance))
        << kernel->name << " head_dim " << options.head_dim << " window " << options.window;
  }
}

// Results are close to the reference and have the same bits with 1 and 3 threads; kernels that round
// queries stay within the contract, and give the same bits for queries that are rounded beforehand.
void CheckCase(const OpDefinition& op, const device::Capabilities& caps,
               const AttentionOptions& options, const std::vector<PagedRequest>& requests) {
  AttentionCase c(options, requests);
  ASSERT_TRUE(op.check(c.call()).ok()) << op.check(c.call()).ToString();
  const std::vector<const Kernel*> kernels = Kernels(op, caps, c.call());
  device::ThreadPool one({.num_threads = 1});
  const auto reference = [&](AttentionCase& of) {
    return of.Run(conformance::ReferenceKernel(op), one);
  };
  const std::vector<float> expected = reference(c);
  std::optional<AttentionCase> rounded;
  if (!HasKvScales(options.dtype) && std::ranges::any_of(kernels, Rounds)) {
    rounded.emplace(Rounded(options), requests);
  }
  const std::vector<float> expected_rounded = rounded ? reference(*rounded) : expected;
  for (const Kernel* kernel : kernels) {
    const std::vector<float> alone = c.Run(*kernel, one);
    EXPECT_TRUE(Rounds(kernel) ? AllClose(alone, expected_rounded, kRoundedTolerance)
                               : AllClose(alone, expected, kTolerance))
        << kernel->name << " head_dim " << options.head_dim << " window " << options.window;
    if (Rounds(kernel) && rounded) {
      EXPECT_TRUE(BitEqual(rounded->Run(*kernel, one), alone)) << kernel->name;
    }
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      if (threads == 1) continue;
      device::ThreadPool pool({.num_threads = threads});
      EXPECT_TRUE(BitEqual(c.Run(*kernel, pool), alone)) << kernel->name << " " << threads;
    }
  }
  CheckEqualScores(op, kernels, options, requests);
}

// 31 requests of mixed lengths: some decode, some prefill.
std::vector<PagedRequest> Others() {
  std::vector<PagedRequest> requests;
  for (int32_t i = 0; i < 31; ++i) {
    requests.push_back({.context = i * 23 % 290, .tokens = i % 5 == 0 ? 17 : 1});
  }
  return requests;
}

// Rows of request 0, which has number 100, for `tokens` tokens after a context of `context`; alone
// or with the 31 others.
std::vector<float> Rows(const Kernel& kernel, const AttentionOptions& options, int32_t context,
                        int32_t tokens, bool with_others, int32_t threads) {
  std::vector<PagedRequest> requests = {{.context = context, .tokens = tokens}};
  std::vector<int32_t> ids = {100};
  if (with_others) {
    for (const PagedRequest& other : Others()) {
      ids.push_back(static_cast<int32_t>(ids.size()));
      requests.push_back(other);
    }
  }
  AttentionCase c(options, requests, ids);
  device::ThreadPool pool({.num_threads = threads});
  std::vector<float> y = c.Run(kernel, pool);
  y.resize(tokens * options.q_heads * options.head_dim);
  return y;
}

void ExpectSame(const Kernel& kernel, const AttentionOptions& options,
                const std::vector<float>& whole, int32_t context, int32_t tokens,
                bool with_others) {
  const int64_t size = options.q_heads * options.head_dim;
  const int32_t threads = 1 + context % 3;
  const std::vector<float> part = Rows(kernel, options, context, tokens, with_others, threads);
  const std::span<const float> expected(whole.data() + context * size, tokens * size);
  EXPECT_TRUE(BitEqual(part, expected))
      << kernel.name << " window " << options.window << ": other bits for tokens [" << context
      << ", " << context + tokens << ") " << (with_others ? "among others" : "alone");
}

// A prompt has the same bits in one step, in chunks of 64, token by token, alone and among others.
void CheckInvariance(const OpDefinition& op, const device::Capabilities& caps,
                     const AttentionOptions& options, int32_t prompt, int32_t single_step) {
  const AttentionCase shape(options, {{.context = 0, .tokens = prompt}});
  for (const Kernel* kernel : Kernels(op, caps, shape.call())) {
    if (kernel->varies_with_batch) continue;
    const std::vector<float> whole = Rows(*kernel, options, 0, prompt, false, 1);
    ExpectSame(*kernel, options, whole, 0, prompt, true);
    for (int32_t context = 0; context < prompt; context += 64) {
      ExpectSame(*kernel, options, whole, context, std::min(64, prompt - context),
                 context % 128 == 0);
    }
    for (int32_t context = 0; context < prompt; context += single_step) {
      ExpectSame(*kernel, options, whole, context, 1, context % 20 == 0);
    }
  }
}

void CheckShapes(const OpDefinition& op, const device::Capabilities& caps, DType dtype,
                 std::initializer_list<int64_t> head_dims) {
  const std::vector<PagedRequest> mixed = {{0, 1},  {0, 37}, {15, 1}, {16, 1},  {63, 2},
                                           {64, 1}, {90, 0}, {5, 70}, {300, 3}, {255, 2}};
  for (int64_t head_dim : head_dims) {
    CheckCase(op, caps, {.q_heads = 6, .kv_heads = 2, .head_dim = head_dim, .dtype = dtype}, mixed);
  }
  const std::pair<int64_t, int64_t> heads[] = {{1, 1}, {4, 4}, {4, 2}, {4, 1}, {14, 2}, {50, 1}};
  for (const auto& [q_heads, kv_heads] : heads) {
    CheckCase(op, caps, {.q_heads = q_heads, .kv_heads = kv_heads, .head_dim = 32, .dtype = dtype},
              mixed);
  }
  for (int32_t block_size : {32, 8, HasInt4Rows(dtype) ? 4 : 1, 24}) {
    CheckCase(
        op, caps,
        {.q_heads = 3, .kv_heads = 3, .head_dim = 16, .block_size = block_size, .dtype = dtype},
        mixed);
  }
}

// Fewer cases than for other types, since only the loads differ.
void CheckF8Shapes(const OpDefinition& op, const device::Capabilities& caps) {
  const std::vector<PagedRequest> mixed = {{0, 37}, {15, 1}, {5, 70}, {300, 3}};
  for (int64_t head_dim : {32, 64, 80, 112, 128, 256, 5}) {
    CheckCase(op, caps,
              {.q_heads = 3, .kv_heads = 1, .head_dim = head_dim, .dtype = DType::kF8E4M3}, mixed);
  }
  AttentionOptions scaled{.q_heads = 4, .kv_heads = 2, .dtype = DType::kF8E4M3};
  scaled.kv_scales = {.k = 0.37f, .v = 3.1f};
  CheckCase(op, caps, scaled, mixed);
  scaled.soft_cap = 3;
  CheckCase(op, caps, scaled, mixed);
  for (int32_t block_size : {32, 8}) {
    CheckCase(op, caps,
              {.q_heads = 4,
               .kv_heads = 2,
               .head_dim = 18,
               .block_size = block_size,
               .dtype = DType::kF8E4M3},
              mixed);
  }
}

// Requests that share their first blocks, most of one token: results are within the same bound, and
// have the same bits as without num_common_blocks.
void CheckSharing(const OpDefinition& op, const device::Capabilities& caps,
                  const AttentionOptions& options, int32_t num_requests = 17) {
  std::vector<PagedRequest> requests;
  const int32_t common = options.common_blocks * options.block_size;
  for (int32_t i = 0; i < num_requests; ++i) {
    requests.push_back({.context = common + i * 29 % 190, .tokens = i % 7 == 0 ? 3 : 1});
  }
  CheckCase(op, caps, options, requests);
  AttentionCase shared(options, requests), hidden(options, requests);
  hidden.HideSharing();
  device::ThreadPool pool({.num_threads = 2});
  for (const Kernel* kernel : Kernels(op, caps, shared.call())) {
    EXPECT_TRUE(BitEqual(shared.Run(*kernel, pool), hidden.Run(*kernel, pool))) << kernel->name;
  }
}

// Features that change scores or visibility, one at a time, for every cache type with kernels that
// round queries: separate requests, and requests that share a split.
void CheckEachFeature(const OpDefinition& op, const device::Capabilities& caps) {
  for (DType dtype : {DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kU4, DType::kK8V4}) {
    const AttentionOptions plain{
        .q_heads = 6, .kv_heads = 2, .head_dim = 32, .dtype = dtype, .common_blocks = 16};
    std::vector<AttentionOptions> features(9, plain);
    features[0].window = 300;
    features[1].soft_cap = 3;
    features[2].sinks = true;
    features[3].slopes = true;
    features[4].window = 90;
    features[4].chunked = true;
    features[5].bias_reach = 100;
    features[6].grows_from = 20;
    features[7].grows_from = 20;
    features[7].soft_cap = 3;
    features[8].soft_cap = 3;
    features[8].bias_reach = 100;
    for (AttentionOptions& options : features) {
      SCOPED_TRACE(std::string(Info(dtype).name) + " window " + std::to_string(options.window) +
                   " soft_cap " + std::to_string(options.soft_cap) + " grows_from " +
                   std::to_string(options.grows_from) + " sinks " +
                   std::to_string(options.sinks) + " slopes " + std::to_string(options.slopes) +
                   " bias_reach " + std::to_string(options.bias_reach));
      CheckSharing(op, caps, options, 5);
      options.common_blocks = 0;
      CheckCase(op, caps, options, {{0, 40}, {100, 1}, {330, 2}});
    }
  }
}

// Queries in bf16 and f16, for every cache type, with all operands.
void CheckTypes(const OpDefinition& op, const device::Capabilities& caps) {
  for (DType dtype :
       {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kU4, DType::kK8V4}) {
    AttentionOptions options{.q_heads = 6, .kv_heads = 2, .head_dim = 5, .dtype = dtype};
    for (bool all : {false, true}) {
      options.sinks = options.slopes = all;
      options.window = all ? 9 : 0;
      const AttentionCase c(options, {{0, 1}, {0, 17}, {20, 1}, {9, 0}, {15, 3}});
      // Scores are below 20 and values below 6: the contract's bound.
      conformance::CheckActTypes({.op = op,
                                  .caps = caps,
                                  .call = c.call(),
                                  .act_inputs = 0b1,
                                  .tolerance = {.abs = 4e-6 * (1 + 20) * 6}});
    }
  }
}

// Keys in rows: the reference has the bits that it has with keys in columns, and kernels are close.
void CheckKeysInRows(const OpDefinition& op, const device::Capabilities& caps) {
  const std::vector<PagedRequest> mixed = {{0, 40}, {100, 1}, {90, 0}, {600, 1}, {511, 7}, {7, 3}};
  device::ThreadPool one({.num_threads = 1});
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3}) {
    for (const int64_t head_dim : {5, 64, 128, 256}) {
      AttentionOptions options{
          .q_heads = 6, .kv_heads = 2, .head_dim = head_dim, .dtype = dtype};
      AttentionCase columns(options, mixed);
      const std::vector<float> expected = columns.Run(conformance::ReferenceKernel(op), one);
      options.keys_in_rows = true;
      AttentionCase rows(options, mixed);
      EXPECT_TRUE(BitEqual(rows.Run(conformance::ReferenceKernel(op), one), expected));
      CheckCase(op, caps, options, mixed);
    }
  }
}

// Keys of an encoder, and those of the decoder behind them.
void CheckParts(const OpDefinition& op, const device::Capabilities& caps,
                const std::vector<PagedRequest>& requests) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (int32_t position : conformance::FewIfEmulated({5, 64, 300})) {
      AttentionOptions parts{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = dtype};
      parts.encoder_end = position;
      parts.encoder_keys = true;
      CheckCase(op, caps, parts, requests);
      parts.encoder_keys = false;
      parts.decoder_keys = true;
      CheckCase(op, caps, parts, requests);
    }
  }
}

// Items of which nothing, a part and all is in the cache, in one tile and in several splits.
void CheckItems(const OpDefinition& op, const device::Capabilities& caps) {
  const std::vector<PagedRequest> requests = {{0, 40}, {20, 60}, {90, 1}, {3, 9}, {0, 330}};
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (int32_t window : {0, 30}) {
      AttentionOptions items{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = dtype};
      items.window = window;
      for (const auto& [begin, end] : {std::pair(5, 30), std::pair(17, 280)}) {
        items.item_begin = begin;
        items.item_end = end;
        CheckCase(op, caps, items, requests);
      }
    }
  }
}

}  // namespace

void CheckPagedAttentionConformance(const OpDefinition& op, const device::Capabilities& caps) {
  CheckTypes(op, caps);
  CheckKeysInRows(op, caps);
  CheckShapes(op, caps, DType::kBF16, {32, 64, 80, 96, 112, 128, 192, 256, 16, 72, 24, 5});
  CheckShapes(op, caps, DType::kF32, {64, 72, 256, 5});
  CheckShapes(op, caps, DType::kI8, {32, 64, 80, 128, 256, 16, 5});
  CheckShapes(op, caps, DType::kU4, {32, 64, 80, 128, 256, 96, 5, 2, 66});
  CheckShapes(op, caps, DType::kK8V4, {64, 80, 256, 5, 2, 66});
  CheckF8Shapes(op, caps);
  CheckEachFeature(op, caps);
  const std::vector<PagedRequest> mixed = {{0, 40}, {100, 1}, {600, 1}, {511, 7}, {7, 3}};
  for (int32_t window : conformance::FewIfEmulated({1, 7, 64, 100, 512})) {
    for (bool chunked : {false, true}) {
      AttentionOptions options{.q_heads = 4, .kv_heads = 1, .head_dim = 32, .window = window};
      options.chunked = chunked;
      CheckCase(op, caps, options, mixed);
    }
  }
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (int32_t window : conformance::FewIfEmulated({0, 1, 7, 65, 300})) {
      AttentionOptions both_ways{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = dtype};
      both_ways.window = window;
      both_ways.causal = false;
      CheckCase(op, caps, both_ways, {{0, 1}, {0, 17}, {0, 64}, {0, 65}, {0, 170}});
      if (window != 0 && window != 300) continue;
      both_ways.q_heads = 2;  // the next one takes seconds where GPUs are emulated
      both_ways.kv_heads = 1;
      CheckCase(op, caps, both_ways, {{0, 530}});  // more keys than a split has
    }
  }
  CheckParts(op, caps, mixed);
  CheckItems(op, caps);
  CheckCase(op, caps, {.q_heads = 4, .kv_heads = 2, .head_dim = 32, .soft_cap = 3}, mixed);
  for (double soft_cap : {0.0, 3.0}) {
    AttentionOptions growing{.q_heads = 4, .kv_heads = 2, .head_dim = 40, .dtype = DType::kF32};
    growing.soft_cap = soft_cap;
    growing.grows_from = 30;
    CheckCase(op, caps, growing, mixed);
  }
  for (bool sinks : {false, true}) {
    for (bool slopes : {false, true}) {
      for (double soft_cap : {0.0, 4.0}) {
        AttentionOptions options{
            .q_heads = 14, .kv_heads = 2, .head_dim = 40, .soft_cap = soft_cap};
        options.sinks = sinks;
        options.slopes = slopes;
        options.window = sinks && slopes ? 70 : 0;
        options.dtype = sinks ? DType::kBF16 : DType::kF32;
        CheckCase(op, caps, options, mixed);
      }
    }
  }
  CheckCase(op, caps, {.q_heads = 4, .kv_heads = 2, .causal = false, .sinks = true, .slopes = true},
            {{0, 1}, {0, 65}, {0, 300}});
  AttentionOptions int8{.q_heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = DType::kI8};
  int8.slopes = true;
  int8.causal = false;
  CheckCase(op, caps, int8, {{0, 1}, {0, 65}, {0, 300}});
  int8.causal = int8.sinks = true;
  int8.soft_cap = 4;
  int8.window = 70;
  CheckCase(op, caps, int8, mixed);
  CheckCase(op, caps, {.q_heads = 4, .kv_heads = 2, .head_dim = 32}, {});
  CheckSharing(op, caps, {.q_heads = 6, .kv_heads = 2, .head_dim = 32, .common_blocks = 35});
  CheckSharing(op, caps,
               {.q_heads = 5, .kv_heads = 1, .head_dim = 24, .sinks = true, .common_blocks = 16});
  CheckSharing(op, caps,
               {.q_heads = 2, .kv_heads = 2, .head_dim = 16, .window = 300, .common_blocks = 33});
  for (DType dtype : {DType::kI8, DType::kU4, DType::kK8V4}) {
    CheckSharing(
        op, caps,
        {.q_heads = 6, .kv_heads = 2, .head_dim = 32, .dtype = dtype, .common_blocks = 35});
  }
  // Few tiles and long contexts: threads divide splits, in several waves.
  CheckCase(op, caps, {.head_dim = 16}, {{6000, 1}});
  CheckCase(op, caps, {.q_heads = 2, .kv_heads = 1, .head_dim = 16, .window = 700},
            {{6000, 2}, {300, 1}});
}

void CheckPagedAttentionInvariance(const OpDefinition& op, const device::Capabilities& caps) {
  CheckInvariance(op, caps, {.q_heads = 3, .kv_heads = 1, .head_dim = 32}, 300, 1);
  CheckInvariance(op, caps,
                  {.q_heads = 2, .kv_heads = 2, .head_dim = 24, .dtype = DType::kF32, .window = 50},
                  300, 7);
  CheckInvariance(op, caps, {.q_heads = 7, .kv_heads = 1, .head_dim = 80, .soft_cap = 5}, 300, 13);
  CheckInvariance(op, caps, {.q_heads = 4, .kv_heads = 1, .head_dim = 16}, 1100, 41);
  for (DType dtype : {DType::kI8, DType::kU4, DType::kK8V4}) {
    CheckInvariance(op, caps,
                    {.q_heads = 6, .kv_heads = 2, .head_dim = 32, .dtype = dtype, .window = 90},
                    300, 7);
  }
  CheckInvariance(
      op, caps,
      {.q_heads = 6, .kv_heads = 2, .head_dim = 24, .dtype = DType::kF8E4M3, .window = 280}, 300,
      7);
  CheckInvariance(op, caps,
                  {.q_heads = 4, .kv_heads = 2, .head_dim = 32, .sinks = true, .slopes = true}, 300,
                  13);
  CheckInvariance(op, caps, {.q_heads = 4, .kv_heads = 2, .head_dim = 32, .bias_reach = 70}, 300,
                  13);
  AttentionOptions chunked{.q_heads = 3, .kv_heads = 1, .head_dim = 32, .window = 70};
  chunked.chunked = true;
  CheckInvariance(op, caps, chunked, 300, 7);
  AttentionOptions part{
      .q_heads = 3, .kv_heads = 1, .head_dim = 32, .encoder_keys = true, .encoder_end = 70};
  CheckInvariance(op, caps, part, 300, 7);
  part.encoder_keys = false;
  part.decoder_keys = true;
  CheckInvariance(op, caps, part, 300, 7);
  // Products with weights are below the smallest normal number.
  CheckInvariance(op, caps,
                  {.q_heads = 3, .kv_heads = 1, .head_dim = 32, .value_factor = 0x1p-124f}, 300, 7);
}

}  // namespace pagemill::ops
