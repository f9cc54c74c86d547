#include "cc/program/greedy_tail.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/native_executor.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

using testing::BatchBuilder;

constexpr int32_t kVocab = 83;  // of the tiny models

std::unique_ptr<NativeExecutor> MustCreate(const std::string& text, const std::string& kernels = "",
                                           DType activation_type = DType::kF32) {
  ExecutorOptions options;
  options.activation_type = activation_type;
  options.num_threads = 2;
  options.max_num_tokens = 64;
  options.max_num_seqs = options.max_num_logits_rows = 40;
  options.num_blocks = 200;
  options.max_adapters = 2;
  options.poison_dead_memory = true;
  options.kernel_filter = kernels;
  const Target target = {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
  auto executor = NativeExecutor::Create(*Program::Parse(text), target, options);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *std::move(executor);
}

BatchBuilder Requests(int32_t count) {
  BatchBuilder arrays(16, 4);
  for (int32_t r = 0; r < count; ++r) arrays.Add(r, 0, {7 * r % kVocab});
  return arrays;
}

// The argmax of the first `columns` of each row, from a step that computes logits.
std::vector<int32_t> Largest(NativeExecutor& executor, const BatchBuilder& arrays,
                             int32_t columns) {
  ExecutorOutput output;
  EXPECT_TRUE(executor.Execute(arrays.view(), &output).ok());
  EXPECT_TRUE(output.maxima.empty());
  std::vector<int32_t> largest;
  for (int64_t row = 0; row < output.logits().shape[0]; ++row) {
    const float* logits = output.logits().Row<const float>(row);
    largest.push_back(static_cast<int32_t>(std::max_element(logits, logits + columns) - logits));
  }
  return largest;
}

// `text` with adapters of the head.
std::string WithAdapters(std::string text) {
  const size_t output = text.find("output logits ");
  const size_t end = text.find('\n', output);
  const std::string logits = text.substr(output + 14, end - output - 14);
  const std::string product = "op linear ";
  const size_t x_begin = text.rfind(product, output) + product.size();
  const std::string x = text.substr(x_begin, text.find(',', x_begin) - x_begin);
  const std::string shape = std::to_string(kVocab);
  text.replace(output, end - output,
               "adapter head " + shape + ",64\ninput adapter_slots i32 tokens\n" +
                   "value adapted f32 logits_rows," + shape + "\n" + "op apply_adapter " + x +
                   ",adapter_slots,logits_rows,-," + logits + ",head -> adapted\n" +
                   "output logits adapted");
  return text;
}

ExecutorOutput RunGreedy(NativeExecutor& executor, const BatchBuilder& arrays, int32_t columns) {
  ops::StepBatch batch = arrays.view();
  batch.argmax_columns = columns;
  ExecutorOutput output;
  EXPECT_TRUE(executor.Execute(batch, &output).ok());
  return output;
}

TEST(GreedyTailTest, GivesTheTokensThatLogitsWould) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_1}) {
    const std::string text = testing::TinyLlamaText({.seed = 3, .weight_dtype = dtype});
    for (const char* kernels : {"", "portable", "reference"}) {
      const auto executor = MustCreate(text, kernels);
      for (const int32_t requests : {1, 5, 40}) {
        SCOPED_TRACE(std::string(Info(dtype).name) + " " + kernels + std::to_string(requests));
        const BatchBuilder arrays = Requests(requests);
        for (const int32_t columns : {kVocab, 50, 1}) {
          const std::vector<int32_t> expected = Largest(*executor, arrays, columns);
          const ExecutorOutput output = RunGreedy(*executor, arrays, columns);
          EXPECT_EQ(output.logits().rank, 0);
          ASSERT_EQ(output.maxima.size(), expected.size());
          for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_EQ(output.maxima[i].column, expected[i]) << "row " << i;
          }
        }
      }
    }
  }
}

// Logits are f32 for every activation type.
TEST(GreedyTailTest, GivesTheTokensThatLogitsWouldInEveryType) {
  const std::string text = testing::TinyLlamaText({.seed = 4, .weight_dtype = DType::kBF16});
  for (const DType act : {DType::kBF16, DType::kF16}) {
    const auto executor = MustCreate(text, "", act);
    const BatchBuilder arrays = Requests(5);
    const std::vector<int32_t> expected = Largest(*executor, arrays, kVocab);
    const ExecutorOutput output = RunGreedy(*executor, arrays, kVocab);
    EXPECT_EQ(output.logits().rank, 0);
    ASSERT_EQ(output.maxima.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(output.maxima[i].column, expected[i]);
  }
}

TEST(GreedyTailTest, AStepWithoutRowsRuns) {
  const auto executor = MustCreate(testing::TinyLlamaText({}));
  EXPECT_TRUE(RunGreedy(*executor, BatchBuilder(16, 4), kVocab).maxima.empty());
}

TEST(GreedyTailTest, AProfileCountsTheProjection) {
  const auto executor = MustCreate(testing::TinyLlamaText({}));
  executor->SetProfiling(true);
  (void)RunGreedy(*executor, Requests(2), kVocab);
  const std::vector<OpTime> times = executor->profile().Times(StepKind::kDecode);
  EXPECT_TRUE(std::any_of(times.begin(), times.end(), [](const OpTime& time) {
    return time.op == "linear" && time.matrix == "f32[83,64]" && time.calls == 1;
  }));
}

// Rows without an adapter of the projection are as fast as in a program without adapters.
TEST(GreedyTailTest, AdaptersOfTheProjectionComputeLogits) {
  const std::string text = testing::TinyLlamaText({.seed = 3});
  const auto executor = MustCreate(WithAdapters(text));
  std::vector<float> ones(64 + kVocab, 1.0f);
  const std::vector<AdapterWeights::Layer> layers = {
      {.name = "head",
       .tensors = {.a = TensorView::Dense(ones.data(), DType::kF32, {1, 64}),
                   .b = TensorView::Dense(ones.data(), DType::kF32, {kVocab, 1}),
                   .scale = 1,
                   .gain = {},
                   .offset = {}}}};
  ASSERT_TRUE(
      executor->SetAdapter(1, *AdapterWeights::Make(executor->program(), layers)).ok());
  const BatchBuilder arrays = Requests(3);
  ops::StepBatch batch = arrays.view();
  batch.argmax_columns = kVocab;
  const std::vector<int32_t> expected = Largest(*MustCreate(text), arrays, kVocab);
  for (const std::vector<int32_t>& slots :
       std::vector<std::vector<int32_t>>{{-1, -1, -1}, {0, -1, 0}, {-1, 0, 1}}) {
    batch.adapter_slots = slots.data();
    ExecutorOutput output;
    ASSERT_TRUE(executor->Execute(batch, &output).ok());
    const bool adapted = slots.back() == 1;
    ASSERT_EQ(output.maxima.empty(), adapted);
    EXPECT_EQ(output.logits().rank, adapted ? 2 : 0);
    for (size_t i = 0; i < output.maxima.size(); ++i) {
      EXPECT_EQ(output.maxima[i].column, expected[i]) << "row " << i;
    }
  }
}

TEST(GreedyTailTest, MoreColumnsThanLogitsHaveGetLogits) {
  const auto executor = MustCreate(testing::TinyLlamaText({}));
  const ExecutorOutput output = RunGreedy(*executor, Requests(2), kVocab + 1);
  EXPECT_TRUE(output.maxima.empty());
  EXPECT_EQ(output.logits().shape[1], kVocab);
}

// Programs whose logits are not a plain product, or are read within the step.
TEST(GreedyTailTest, OtherEndsComputeLogits) {
  const auto find = [](const std::string& tail) {
    const std::string text =
        "pagemill-program 3\nfile 0 @\nweight w f32 3,2 0 0\nweight u f32 2,2 0 0\n"
        "input token_ids i32 tokens\ninput logits_rows i32 logits_rows\nvalue x f32 "
        "tokens,2\nvalue s f32 logits_rows,2\n"
        "value a f32 logits_rows,3\nvalue b f32 logits_rows,3\nvalue out f32 logits_rows,3\n"
        "op embedding token_ids,u -> x\nop select_rows x,logits_rows -> s\n" +
        tail + "output logits out\nconstants 24\n" + std::string(48, '0') + "\n";
    const StatusOr<Program> program = Program::Parse(text);
    EXPECT_TRUE(program.ok()) << program.status().ToString();
    return GreedyTail::Find(*program, ops::CpuOps(), 4).has_value();
  };
  const std::string others = "op linear s,w -> a\nop linear s,w -> b\n";
  EXPECT_TRUE(find(others + "op linear s,w -> out\n"));
  EXPECT_TRUE(find(others + "op all_gather a -> out ranks=1 rank=0\n"));
  EXPECT_FALSE(find(others + "op activation a -> out kind=4\n")) << "capped";
  EXPECT_FALSE(find(others + "op all_gather b -> out ranks=1 rank=0\nop kv_write b,a ->\n"))
      << "read before they are gathered";
  EXPECT_FALSE(find("op linear s,w -> out\nop activation out -> a kind=0\nop add a,a -> b\n"))
      << "read by another op";
  EXPECT_FALSE(find("op linear s,w,-,w,- -> out,a\nop add a,a -> b\n")) << "one of two products";
  EXPECT_FALSE(GreedyTail::Find(*Program::Parse(testing::TinyLlamaText({.pooled = true})),
                                ops::CpuOps(), 4));
}

}  // namespace
}  // namespace pagemill::program
