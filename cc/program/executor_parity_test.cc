// A whole small model, run with the best kernels and with the references, whole and in pieces, with
// and without poisoned memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/program/rewrites/rewrites.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

using ops::conformance::AllClose;
using ops::conformance::BitEqual;
using ops::conformance::Random;
using testing::BatchBuilder;
using testing::TinyLlamaOptions;

constexpr int32_t kBlocksPerRequest = 4;
constexpr int32_t kSlots = 5;

struct Case {
  const char* name;
  TinyLlamaOptions model;
  DType kv_cache = DType::kF32;
  DType activations = DType::kF32;
};

ExecutorOptions OptionsOf(const Case& c) {
  ExecutorOptions options;
  options.num_threads = 2;
  options.max_num_tokens = 96;
  options.max_num_seqs = kSlots;
  options.max_num_logits_rows = kSlots;
  options.num_blocks = 1 + 3 * kSlots * kBlocksPerRequest;  // for up to three block tables
  options.kv_cache_dtype = c.kv_cache;
  options.activation_type = c.activations;
  return options;
}

std::unique_ptr<NativeExecutor> MakeExecutor(const std::string& text,
                                             const ExecutorOptions& options, bool rewrite) {
  StatusOr<Program> program = Program::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  if (rewrite) program = RewriteProgram(*std::move(program), ops::CpuOps());
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  const Target target = {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
  StatusOr<std::unique_ptr<NativeExecutor>> executor =
      NativeExecutor::Create(*std::move(program), target, options);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *std::move(executor);
}

std::vector<float> RunStep(NativeExecutor& executor, const BatchBuilder& arrays) {
  ExecutorOutput output;
  const Status status = executor.Execute(arrays.view(), &output);
  EXPECT_TRUE(status.ok()) << status.ToString();
  const TensorView& view = output.logits().rank > 0 ? output.logits() : output.pooled();
  const float* data = view.Data<float>();
  return std::vector<float>(data, data + view.Elements());
}

// Prompts of odd lengths, one per slot.
std::vector<std::vector<int32_t>> Prompts(uint64_t seed, int32_t vocab) {
  Random random(seed);
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t length : {1, 17, 33, 5, 16}) {
    prompts.emplace_back();
    for (int64_t i = 0; i < length; ++i) {
      prompts.back().push_back(static_cast<int32_t>(random.Int(0, vocab - 1)));
    }
  }
  return prompts;
}

// An empty batch with the block tables of the model's KV groups.
BatchBuilder EmptyBatch(const Case& c) {
  const StatusOr<Program> program = Program::Parse(testing::TinyLlamaText(c.model));
  const StatusOr<KvLayout> layout = PlanKvLayout(*program, GeometryOf(OptionsOf(c)));
  return BatchBuilder(layout->TableBlockSizes(), kBlocksPerRequest);
}

BatchBuilder WholeBatch(const Case& c, const std::vector<std::vector<int32_t>>& prompts) {
  BatchBuilder arrays = EmptyBatch(c);
  for (size_t s = 0; s < prompts.size(); ++s) arrays.Add(static_cast<int32_t>(s), 0, prompts[s]);
  return arrays;
}

class ExecutorParityTest : public ::testing::TestWithParam<Case> {};

// With f32 caches: another type would round a value between two steps.
class KernelParityTest : public ExecutorParityTest {};

TEST_P(KernelParityTest, BestKernelsAgreeWithReferences) {
  const std::string text = testing::TinyLlamaText(GetParam().model);
  ExecutorOptions options = OptionsOf(GetParam());
  options.poison_dead_memory = true;
  options.activations = ops::Precision::kF32;
  const auto best = MakeExecutor(text, options, /*rewrite=*/true);
  for (const ops::Kernel* kernel : best->kernels().kernels) EXPECT_NE(kernel->name, "reference");
  options.kernel_filter = "reference";
  const auto reference = MakeExecutor(text, options, /*rewrite=*/false);
  for (const ops::Kernel* kernel : reference->kernels().kernels)
    EXPECT_EQ(kernel->name, "reference");
  const BatchBuilder arrays = WholeBatch(GetParam(), Prompts(7, GetParam().model.vocab));
  // The outputs have magnitude about 1 and depend on about 20 roundings of 6e-8 of sums of up to
  // 100 terms in each of 2 layers, which compensate: 1e-4 leaves a factor of ten.
  EXPECT_TRUE(
      AllClose(RunStep(*best, arrays), RunStep(*reference, arrays), {.abs = 1e-4, .rel = 1e-4}));
}

// Rounding to bf16 changes a value by at most 2^-9 of itself, and by a bit more than half of that
// (0.11 %) in the mean square. Some 40 such independent errors accumulate over 2 layers: 0.7 %. The
// bound is three times that.
TEST(ActivationTypeTest, Bf16IsNearF32) {
  for (const bool pooled : {false, true}) {
    const Case f32 = {"", {.seed = 16, .pooled = pooled}};
    Case bf16 = f32;
    bf16.activations = DType::kBF16;
    const std::string text = testing::TinyLlamaText(f32.model);
    const auto wide = MakeExecutor(text, OptionsOf(f32), /*rewrite=*/true);
    const auto narrow = MakeExecutor(text, OptionsOf(bf16), /*rewrite=*/true);
    const BatchBuilder arrays = WholeBatch(f32, Prompts(11, f32.model.vocab));
    const std::vector<float> expected = RunStep(*wide, arrays), actual = RunStep(*narrow, arrays);
    const double error = ops::conformance::NormalizedSquaredError(actual, expected);
    EXPECT_LT(error, 0.02 * 0.02);
    EXPECT_GT(error, 1e-4 * 1e-4) << "nothing was rounded";
  }
}

TEST_P(ExecutorParityTest, FusedProgramHasTheSameBits) {
  const std::string text = testing::TinyLlamaText(GetParam().model);
  const auto fused = MakeExecutor(text, OptionsOf(GetParam()), /*rewrite=*/true);
  const auto plain = MakeExecutor(text, OptionsOf(GetParam()), /*rewrite=*/false);
  EXPECT_LT(fused->program().ops().size(), plain->program().ops().size());
  const BatchBuilder arrays = WholeBatch(GetParam(), Prompts(8, GetParam().model.vocab));
  EXPECT_TRUE(BitEqual(RunStep(*fused, arrays), RunStep(*plain, arrays)));
}

TEST_P(ExecutorParityTest, PoisonedMemoryChangesNoBit) {
  const std::string text = testing::TinyLlamaText(GetParam().model);
  ExecutorOptions options = OptionsOf(GetParam());
  const auto plain = MakeExecutor(text, options, /*rewrite=*/true);
  options.poison_dead_memory = true;
  const auto poisoned = MakeExecutor(text, options, /*rewrite=*/true);
  const BatchBuilder arrays = WholeBatch(GetParam(), Prompts(9, GetParam().model.vocab));
  EXPECT_TRUE(BitEqual(RunStep(*poisoned, arrays), RunStep(*plain, arrays)));
}

TEST_P(ExecutorParityTest, PiecesAndOtherBatchesGiveTheSameBits) {
  if (GetParam().model.pooled) GTEST_SKIP() << "a pooled prompt runs in one step";
  const std::string text = testing::TinyLlamaText(GetParam().model);
  const auto executor = MakeExecutor(text, OptionsOf(GetParam()), /*rewrite=*/true);
  const std::vector<std::vector<int32_t>> prompts = Prompts(10, GetParam().model.vocab);
  const std::vector<float> whole = RunStep(*executor, WholeBatch(GetParam(), prompts));
  const size_t vocab = static_cast<size_t>(GetParam().model.vocab);
  for (size_t s = 0; s < prompts.size(); ++s) {
    // Alone, and in steps of 1, 2, 3, ... tokens; the cache holds another request's keys
    // beforehand.
    std::vector<float> last;
    for (size_t begin = 0, count = 1; begin < prompts[s].size(); begin += count++) {
      const size_t end = std::min(begin + count, prompts[s].size());
      BatchBuilder arrays = EmptyBatch(GetParam());
      arrays.Add(3, static_cast<int32_t>(begin),
                 {prompts[s].begin() + static_cast<std::ptrdiff_t>(begin),
                  prompts[s].begin() + static_cast<std::ptrdiff_t>(end)});
      last = RunStep(*executor, arrays);
    }
    EXPECT_TRUE(BitEqual(last, std::span(whole).subspan(s * vocab, vocab))) << "prompt " << s;
  }
}

const Case kModels[] = {
    {"F32", {}},
    {"Bf16", {.seed = 2, .weight_dtype = DType::kBF16}},
    {"F16", {.seed = 3, .weight_dtype = DType::kF16}},
    {"Q8_0", {.seed = 4, .weight_dtype = DType::kQ8_0}},
    {"Q4_1", {.seed = 5, .weight_dtype = DType::kQ4_1}},
    {"Q6_K",
     {.seed = 6, .weight_dtype = DType::kQ6_K, .layers = 1, .hidden = 256, .heads = 4, .ffn = 256}},
    {"SlidingWindow", {.seed = 7, .layers = 3, .window = 9}},
    {"OddHeads", {.seed = 8, .hidden = 60, .heads = 6, .kv_heads = 1, .ffn = 33, .vocab = 7}},
    {"Pooled", {.seed = 9, .pooled = true}},
};

const Case kCaches[] = {
    {"Bf16Cache", {.seed = 10, .window = 9}, DType::kBF16},
    {"Int8Cache", {.seed = 11, .window = 9}, DType::kI8},
    {"F8Cache", {.seed = 12, .window = 9}, DType::kF8E4M3},
    {"Int4Cache", {.seed = 16, .window = 9}, DType::kU4},
    {"K8V4Cache", {.seed = 17, .window = 9}, DType::kK8V4},
};

const Case kTypes[] = {
    {"Bf16Activations", {.seed = 13, .window = 9}, DType::kF32, DType::kBF16},
    {"F16Activations", {.seed = 14, .weight_dtype = DType::kQ8_0}, DType::kI8, DType::kF16},
    {"Bf16Pooled", {.seed = 15, .pooled = true}, DType::kBF16, DType::kBF16},
};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Models, KernelParityTest, ::testing::ValuesIn(kModels), NameOf);
INSTANTIATE_TEST_SUITE_P(Models, ExecutorParityTest, ::testing::ValuesIn(kModels), NameOf);
INSTANTIATE_TEST_SUITE_P(Caches, ExecutorParityTest, ::testing::ValuesIn(kCaches), NameOf);
INSTANTIATE_TEST_SUITE_P(Types, ExecutorParityTest, ::testing::ValuesIn(kTypes), NameOf);

}  // namespace
}  // namespace pagemill::program
