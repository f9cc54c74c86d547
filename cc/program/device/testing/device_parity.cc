#include "cc/program/device/testing/device_parity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cc/comm/shared_memory_world.h"
#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/program/testing/batch_builder.h"

namespace pagemill::program::testing {
namespace {

constexpr int32_t kRequests = 5, kBlocks = 4, kDecodes = 4;
constexpr int32_t kVocab = 64;  // token ids below this are in every model's vocabulary

// A prompt for each request, then steps in which all but the first continue, so that they are
// padded.
std::vector<BatchBuilder> Steps(const std::vector<int32_t>& block_sizes) {
  ops::conformance::Random random(11);
  const auto tokens = [&](int64_t count) {
    std::vector<int32_t> ids;
    while (static_cast<int64_t>(ids.size()) < count) {
      ids.push_back(static_cast<int32_t>(random.Int(0, kVocab - 1)));
    }
    return ids;
  };
  std::vector<BatchBuilder> steps(1 + kDecodes, BatchBuilder(block_sizes, kBlocks));
  for (int32_t r = 0; r < kRequests; ++r) {
    const int32_t length = 1 + 9 * r;
    steps[0].Add(r, 0, tokens(length));
    for (int32_t d = 0; d < kDecodes; ++d) {
      if (r > 0 || d < 2) steps[static_cast<size_t>(1 + d)].Add(r, length + d, tokens(1));
    }
  }
  return steps;
}

std::vector<float> LogitsOf(const ExecutorOutput& output) {
  const TensorView logits = output.logits();
  return {logits.Data<float>(), logits.Data<float>() + logits.Elements()};
}

StatusOr<std::vector<std::vector<float>>> OnCpu(NativeExecutor& executor,
                                                const std::vector<BatchBuilder>& steps) {
  std::vector<std::vector<float>> logits;
  for (const BatchBuilder& step : steps) {
    ExecutorOutput output;
    PAGEMILL_RETURN_IF_ERROR(executor.Execute(step.view(), &output));
    if (output.logits().rank != 2) return InvalidArgument("the program has no logits");
    logits.push_back(LogitsOf(output));
  }
  return logits;
}

StatusOr<std::vector<std::vector<float>>> OnDevice(DeviceExecutor& executor,
                                                   const std::vector<BatchBuilder>& steps) {
  std::vector<std::vector<float>> logits;
  const auto collect = [&]() -> Status {
    ExecutorOutput output;
    PAGEMILL_RETURN_IF_ERROR(executor.Collect(&output));
    logits.push_back(LogitsOf(output));
    return OkStatus();
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    PAGEMILL_RETURN_IF_ERROR(executor.Enqueue(steps[i].view()));
    if (i > 0) PAGEMILL_RETURN_IF_ERROR(collect());
  }
  PAGEMILL_RETURN_IF_ERROR(collect());
  return logits;
}

Status Compare(const std::vector<std::vector<float>>& expected,
               const std::vector<std::vector<float>>& got, const char* how) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto equal = ops::conformance::BitEqual(got[i], expected[i]);
    if (equal) continue;
    return Internal(std::string(how) + ", step " + std::to_string(i) + ": " + equal.message());
  }
  return OkStatus();
}

Status CompareTokens(const std::vector<std::vector<float>>& expected,
                     const std::vector<std::vector<float>>& got, int64_t columns) {
  for (size_t i = 0; i < expected.size(); ++i) {
    for (auto row = expected[i].begin(); row != expected[i].end(); row += columns) {
      const auto other = got[i].begin() + (row - expected[i].begin());
      const auto token = std::max_element(row, row + columns) - row;
      const auto found = std::max_element(other, other + columns) - other;
      if (token == found) continue;
      return Internal("step " + std::to_string(i) + ": token " + std::to_string(found) +
                      " instead of " + std::to_string(token));
    }
  }
  return OkStatus();
}

constexpr double kFarthest = 10;  // times the tolerance

// How far logits may differ: rows of `columns`, of which at most `max_far_rows` by more than
// `tolerance` of the largest logit of all rows, and none by more than kFarthest times that.
struct Closeness {
  double tolerance;
  int64_t columns;
  int64_t max_far_rows = 0;
};

Status CompareWithin(const std::vector<std::vector<float>>& expected,
                     const std::vector<std::vector<float>>& got, const Closeness& closeness) {
  double largest = 1;
  std::vector<double> differences;  // the largest of each row
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t k = 0; k < expected[i].size(); ++k) {
      if (k % static_cast<size_t>(closeness.columns) == 0) differences.push_back(0);
      const double difference = std::abs(got[i][k] - expected[i][k]);
      if (!std::isfinite(difference)) {
        return Internal("logit " + std::to_string(k) + " of step " + std::to_string(i) + " is " +
                        std::to_string(got[i][k]) + " instead of " +
                        std::to_string(expected[i][k]));
      }
      differences.back() = std::max(differences.back(), difference);
      largest = std::max<double>(largest, std::abs(expected[i][k]));
    }
  }
  const double near = closeness.tolerance * largest;
  const int64_t far_rows =
      std::ranges::count_if(differences, [&](double difference) { return difference > near; });
  const double farthest = *std::ranges::max_element(differences);
  if (far_rows <= closeness.max_far_rows && farthest <= kFarthest * near) return OkStatus();
  return Internal(std::to_string(far_rows) + " of " + std::to_string(differences.size()) +
                  " rows of logits differ by more than " + std::to_string(closeness.tolerance) +
                  " of the largest, one by " + std::to_string(farthest / largest));
}

using StepLogits = std::vector<std::vector<float>>;

// All logits on the device, in two runs of the same steps. Steps of 5 and
// of 4 requests come twice in each.
struct DeviceLogits {
  StepLogits first;   // kernel by kernel, except two steps
  StepLogits second;  // from graphs
};

StatusOr<std::unique_ptr<DeviceExecutor>> MakeExecutor(const Program& program,
                                                       const ExecutorOptions& options,
                                                       const Target& target,
                                                       device::Device& device) {
  return DeviceExecutor::Create(
      program, target, device, options,
      {.max_blocks = kBlocks + 1, .max_graph_tokens = options.max_num_tokens});
}

StatusOr<DeviceLogits> RunDevice(const Program& program, const ExecutorOptions& options,
                                 const std::vector<BatchBuilder>& steps,
                                 const DeviceUnderTest& under_test) {
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<DeviceExecutor> executor,
                            MakeExecutor(program, options, under_test.target, under_test.device));
  DeviceLogits logits;
  const int64_t before = under_test.num_replays();
  PAGEMILL_ASSIGN_OR_RETURN(logits.first, OnDevice(*executor, steps));
  const int64_t between = under_test.num_replays();
  PAGEMILL_ASSIGN_OR_RETURN(logits.second, OnDevice(*executor, steps));
  const int64_t first = between - before, second = under_test.num_replays() - between;
  if (first == 2 && second == static_cast<int64_t>(steps.size())) return logits;
  return Internal("graphs were replayed " + std::to_string(first) + " and " +
                  std::to_string(second) + " times");
}

// The same, of a rank's part of a program. Each rank has steps of its own.
StatusOr<DeviceLogits> RunRank(const std::string& text, const ExecutorOptions& options,
                               const std::vector<BatchBuilder> steps,
                               const DeviceUnderTest& under_test,
                               std::shared_ptr<comm::SharedSegment> segment, int32_t rank) {
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(options.activation_type));
  PAGEMILL_ASSIGN_OR_RETURN(const std::shared_ptr<comm::SharedMemoryWorld> world,
                            comm::SharedMemoryWorld::Join(std::move(segment), rank));
  PAGEMILL_RETURN_IF_ERROR(world->WaitForAll(std::chrono::minutes(1)));
  Target target = under_test.target;
  target.groups = world->groups();
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<DeviceExecutor> executor,
                            MakeExecutor(program, options, target, under_test.device));
  DeviceLogits logits;
  PAGEMILL_ASSIGN_OR_RETURN(logits.first, OnDevice(*executor, steps));
  PAGEMILL_ASSIGN_OR_RETURN(logits.second, OnDevice(*executor, steps));
  return logits;
}

}  // namespace

ExecutorOptions ParityOptions() {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 128;
  options.max_num_seqs = options.max_num_logits_rows = kRequests + 1;
  options.num_blocks = 512;
  return options;
}

Status CheckEqualLogits(const std::string& text, DType act, const DeviceUnderTest& under_test) {
  ExecutorOptions options = ParityOptions();
  options.activation_type = act;
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(act));
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<NativeExecutor> cpu,
                            NativeExecutor::Create(program, {.ops = ops::CpuOps()}, options));
  const auto steps = Steps(cpu->memory_plan().kv.TableBlockSizes());
  PAGEMILL_ASSIGN_OR_RETURN(const StepLogits expected, OnCpu(*cpu, steps));
  PAGEMILL_ASSIGN_OR_RETURN(const DeviceLogits got,
                            RunDevice(program, options, steps, under_test));
  PAGEMILL_RETURN_IF_ERROR(Compare(expected, got.first, "kernel by kernel"));
  return Compare(expected, got.second, "from graphs");
}

Status CheckLogitsOfRanks(const std::string& text, const std::vector<std::string>& parts,
                          double tolerance, const DeviceUnderTest& under_test) {
  ExecutorOptions options = ParityOptions();
  options.deterministic = under_test.deterministic;
  options.activations = ops::Precision::kF32;
  options.kv_cache_dtype = DType::kF32;
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<NativeExecutor> cpu,
                            NativeExecutor::Create(program, {.ops = ops::CpuOps()}, options));
  const auto steps = Steps(cpu->memory_plan().kv.TableBlockSizes());
  PAGEMILL_ASSIGN_OR_RETURN(const StepLogits expected, OnCpu(*cpu, steps));
  const auto ranks = static_cast<int32_t>(parts.size());
  const auto segment = *comm::SharedSegment::Create({.topology = {.tensor = ranks}});
  const int64_t before = under_test.num_replays();
  std::vector<StatusOr<DeviceLogits>> logits(parts.size(), Internal("a rank did not run"));
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto at = static_cast<size_t>(r);
      logits[at] = RunRank(parts[at], options, steps, under_test, segment, r);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const StatusOr<DeviceLogits>& each : logits) PAGEMILL_RETURN_IF_ERROR(each.status());
  const int64_t columns = program.value(*program.FindOutput(kLogits)).shape.RowElements();
  PAGEMILL_RETURN_IF_ERROR(
      CompareWithin(expected, logits[0]->first, {.tolerance = tolerance, .columns = columns}));
  PAGEMILL_RETURN_IF_ERROR(CompareTokens(expected, logits[0]->first, columns));
  for (const StatusOr<DeviceLogits>& each : logits) {
    PAGEMILL_RETURN_IF_ERROR(Compare(logits[0]->first, each->first, "another rank"));
    PAGEMILL_RETURN_IF_ERROR(Compare(logits[0]->first, each->second, "from graphs"));
  }
  const int64_t replays = under_test.num_replays() - before;
  if (replays == ranks * static_cast<int64_t>(2 + steps.size())) return OkStatus();
  return Internal("graphs were replayed " + std::to_string(replays) + " times");
}

Status CheckCloseLogits(const std::string& text, DType act, double tolerance,
                        const DeviceUnderTest& under_test, int64_t max_far_rows) {
  ExecutorOptions options = ParityOptions();
  options.activations = ops::Precision::kF32;
  // In bf16, keys that differ in the last bit may be stored as neighbours.
  if (act == DType::kF32) options.kv_cache_dtype = DType::kF32;
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  const Target cpu_target = {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<NativeExecutor> cpu,
                            NativeExecutor::Create(program, cpu_target, options));
  const auto steps = Steps(cpu->memory_plan().kv.TableBlockSizes());
  PAGEMILL_ASSIGN_OR_RETURN(const StepLogits expected, OnCpu(*cpu, steps));
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(act));
  options.activation_type = act;
  options.activations = ops::Precision::kMixedBlock;
  PAGEMILL_ASSIGN_OR_RETURN(const DeviceLogits got,
                            RunDevice(program, options, steps, under_test));
  const Closeness closeness = {
      .tolerance = tolerance,
      .columns = program.value(*program.FindOutput(kLogits)).shape.RowElements(),
      .max_far_rows = max_far_rows};
  PAGEMILL_RETURN_IF_ERROR(CompareWithin(expected, got.first, closeness));
  if (act == DType::kF32) {
    PAGEMILL_RETURN_IF_ERROR(CompareTokens(expected, got.first, closeness.columns));
  }
  PAGEMILL_ASSIGN_OR_RETURN(const KernelSelection selection,
                            SelectKernels(program, under_test.target, options));
  // A step and its graph have other numbers of rows, and not all kernels are recorded.
  const bool varies = std::ranges::any_of(selection.kernels, &ops::Kernel::varies_with_batch);
  return varies ? CompareWithin(expected, got.second, closeness)
                : Compare(got.first, got.second, "from graphs");
}

}  // namespace pagemill::program::testing
