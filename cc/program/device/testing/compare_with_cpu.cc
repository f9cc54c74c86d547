#include "cc/program/device/testing/compare_with_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/native_executor.h"
#include "cc/program/testing/batch_builder.h"

namespace pagemill::program::testing {
namespace {

constexpr int32_t kRequests = 4, kBlocks = 4, kDecodes = 8;
constexpr int32_t kVocab = 64;                // ids below this are in every model's vocabulary
constexpr int32_t kGraphSizes[] = {1, 2, 6};  // the steps are padded
constexpr int32_t kLongestPrompt = 1 + 9 * (kRequests - 1);

using Tokens = std::vector<int32_t>;  // one for each request

ExecutorOptions OptionsOf(DType act) {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = kRequests * kLongestPrompt;
  options.max_num_seqs = options.max_num_logits_rows = kGraphSizes[std::size(kGraphSizes) - 1];
  options.num_blocks = 512;
  options.activation_type = act;
  return options;
}

// Step 0 has the prompts, step i the tokens that step i - 1 chose.
BatchBuilder StepOf(int32_t step, const Tokens& tokens, const std::vector<int32_t>& block_sizes) {
  ops::conformance::Random random(11);
  BatchBuilder batch(block_sizes, kBlocks);
  for (int32_t r = 0; r < kRequests; ++r) {
    std::vector<int32_t> prompt(static_cast<size_t>(1 + 9 * r));
    for (int32_t& id : prompt) id = static_cast<int32_t>(random.Int(0, kVocab - 1));
    if (step == 0) {
      batch.Add(r, 0, prompt);
    } else {
      batch.Add(r, static_cast<int32_t>(prompt.size()) + step - 1,
                {tokens[static_cast<size_t>(r)]});
    }
  }
  return batch;
}

struct Logits {
  explicit Logits(const TensorView& view)
      : width(static_cast<size_t>(view.shape[1])),
        values(view.Data<float>(), view.Data<float>() + view.Elements()) {}

  const float* Row(size_t row) const { return &values[row * width]; }
  Tokens Best() const {
    Tokens best;
    for (size_t r = 0; r < values.size() / width; ++r) {
      best.push_back(static_cast<int32_t>(std::max_element(Row(r), Row(r) + width) - Row(r)));
    }
    return best;
  }
  double Largest() const {
    double largest = 0;
    for (const float value : values) largest = std::max<double>(largest, std::abs(value));
    return largest;
  }

  size_t width;
  std::vector<float> values;
};

StatusOr<std::vector<Logits>> OnCpu(NativeExecutor& cpu, const std::vector<int32_t>& block_sizes) {
  std::vector<Logits> steps;
  for (int32_t i = 0; i <= kDecodes; ++i) {
    const BatchBuilder batch = StepOf(i, i == 0 ? Tokens{} : steps.back().Best(), block_sizes);
    ExecutorOutput output;
    PAGEMILL_RETURN_IF_ERROR(cpu.Execute(batch.view(), &output));
    if (output.logits().rank != 2) return InvalidArgument("the program has no logits");
    steps.push_back(Logits(output.logits()));
  }
  return steps;
}

Status CompareLogits(Executor& device, const std::vector<Logits>& expected, double tolerance,
                     const std::vector<int32_t>& block_sizes) {
  for (int32_t i = 0; i <= kDecodes; ++i) {
    const auto step = static_cast<size_t>(i);
    const BatchBuilder batch =
        StepOf(i, i == 0 ? Tokens{} : expected[step - 1].Best(), block_sizes);
    ExecutorOutput output;
    PAGEMILL_RETURN_IF_ERROR(device.Execute(batch.view(), &output));
    const Logits got(output.logits());
    for (size_t k = 0; k < got.values.size(); ++k) {
      const double difference = std::abs(double{got.values[k]} - expected[step].values[k]);
      if (difference <= tolerance * expected[step].Largest()) continue;  // not `>`: NaN must fail
      return Internal("step " + std::to_string(i) + ", logit " + std::to_string(k) + " is " +
                      std::to_string(got.values[k]) + " instead of " +
                      std::to_string(expected[step].values[k]));
    }
  }
  return OkStatus();
}

// A token that is not the best one may be chosen if it is as good as that within the tolerance;
// what follows it in the request is another text.
Status CompareTokens(const std::vector<Tokens>& got, const std::vector<Logits>& expected,
                     double tolerance) {
  for (size_t r = 0; r < kRequests; ++r) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const int32_t token = got[i][r], best = expected[i].Best()[r];
      if (token == best) continue;
      const float* const logits = expected[i].Row(r);
      if (token >= 0 && logits[best] - logits[token] <= 2 * tolerance * expected[i].Largest()) {
        break;
      }
      return Internal("request " + std::to_string(r) + ", step " + std::to_string(i) + ": token " +
                      std::to_string(token) + " instead of " + std::to_string(best));
    }
  }
  return OkStatus();
}

// Greedy tokens of each step, which the next step reads on the device.
StatusOr<std::vector<Tokens>> Generate(Executor& device, int32_t columns,
                                       const std::vector<int32_t>& block_sizes) {
  std::vector<Tokens> steps;
  const auto collect = [&]() -> Status {
    ExecutorOutput output;
    PAGEMILL_RETURN_IF_ERROR(device.Collect(&output));
    Tokens& tokens = steps.emplace_back();
    for (const ops::RowMaximum& maximum : output.maxima) tokens.push_back(maximum.column);
    return OkStatus();
  };
  Tokens of_rows;
  for (int32_t r = 0; r < kRequests; ++r) of_rows.push_back(TokenOfRow(r));
  for (int32_t i = 0; i <= kDecodes; ++i) {
    const BatchBuilder batch = StepOf(i, of_rows, block_sizes);
    ops::StepBatch view = batch.view();
    view.argmax_columns = columns;
    PAGEMILL_RETURN_IF_ERROR(device.Enqueue(view));
    if (i > 0) PAGEMILL_RETURN_IF_ERROR(collect());
  }
  PAGEMILL_RETURN_IF_ERROR(collect());
  return steps;
}

}  // namespace

Status CompareWithCpu(const std::string& text, const Comparison& comparison, const Target& target,
                      device::Device& device) {
  const ExecutorOptions options = OptionsOf(comparison.act);
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(comparison.act));
  // The kernels that every CPU has.
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<NativeExecutor> cpu,
                            NativeExecutor::Create(program, {.ops = ops::CpuOps()}, options));
  const std::vector<int32_t> block_sizes = cpu->memory_plan().kv.TableBlockSizes();
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<Logits> expected, OnCpu(*cpu, block_sizes));
  const auto columns = static_cast<int32_t>(expected[0].width);
  const double of_tokens = comparison.act == DType::kF32 ? 0 : comparison.tolerance;
  for (const bool graphs : {false, true}) {
    DeviceExecutorOptions device_options = {.max_blocks = kBlocks + 1, .token_columns = columns};
    if (graphs) device_options.graph_sizes.assign(std::begin(kGraphSizes), std::end(kGraphSizes));
    PAGEMILL_ASSIGN_OR_RETURN(
        std::unique_ptr<DeviceExecutor> executor,
        DeviceExecutor::Create(program, target, device, options, device_options));
    PAGEMILL_RETURN_IF_ERROR(
        CompareLogits(*executor, expected, comparison.tolerance, block_sizes));
    PAGEMILL_ASSIGN_OR_RETURN(const std::vector<Tokens> tokens,
                              Generate(*executor, columns, block_sizes));
    PAGEMILL_RETURN_IF_ERROR(CompareTokens(tokens, expected, of_tokens));
  }
  return OkStatus();
}

}  // namespace pagemill::program::testing
