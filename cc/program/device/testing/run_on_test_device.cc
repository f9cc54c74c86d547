// Runs a program on the CPU and on the test device (cc/device/testing), on the same steps: prompts
// of several lengths, then decoding, with two steps in flight. On the device, kernels are enqueued
// one by one, and in a second run replayed from graphs. All logits must have the same bits.
//
//   run_on_test_device PROGRAM_FILE f32|bf16|f16 [TOLERANCE]
//
// With a tolerance, the CPU computes in f32 with this machine's best kernels, and logits may differ
// by this fraction of the largest; the kernels of products and their packed layouts are printed:
// "cpu linear avx512 rows of blocks, version 1" or "device linear enqueued as stored".
//
// Exits with 0 if logits agree; else with 1 and a line that describes the difference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/testing/test_device.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/native_executor.h"
#include "cc/program/program.h"
#include "cc/program/testing/batch_builder.h"

namespace pagemill::program {
namespace {

using device::testing::TestDevice;
using testing::BatchBuilder;

constexpr int32_t kRequests = 5, kBlocks = 4, kDecodes = 4;
constexpr int32_t kVocab = 64;  // token ids below this are in every model's vocabulary
// Graph sizes of the device; the CPU has room for one more, so that strides differ.
constexpr int32_t kGraphSizes[] = {1, 4, 6};

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

ExecutorOptions Options() {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 128;
  options.max_num_seqs = options.max_num_logits_rows = kRequests + 1;
  options.num_blocks = 512;
  return options;
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

Status CompareWithin(const std::vector<std::vector<float>>& expected,
                     const std::vector<std::vector<float>>& got, double tolerance) {
  double largest = 1, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t k = 0; k < expected[i].size(); ++k) {
      largest = std::max<double>(largest, std::abs(expected[i][k]));
      difference = std::max<double>(difference, std::abs(got[i][k] - expected[i][k]));
    }
  }
  if (difference <= tolerance * largest) return OkStatus();  // not `>`: NaN must fail
  return Internal("logits differ by " + std::to_string(difference / largest) + " of the largest");
}

Status PrintProducts(const char* where, const Program& program, const Target& target,
                     const ExecutorOptions& options) {
  PAGEMILL_ASSIGN_OR_RETURN(const KernelSelection selection,
                            SelectKernels(program, target, options));
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const ops::Kernel& kernel = *selection.kernels[i];
    if (kernel.op != "linear" && kernel.op != "grouped_linear") continue;
    const std::string layout(kernel.packing == nullptr ? "as stored" : kernel.packing->layout);
    std::printf("%s %s %s %s\n", where, std::string(kernel.op).c_str(),
                std::string(kernel.name).c_str(), layout.c_str());
  }
  return OkStatus();
}

// Compares the CPU in f32 with the device in `act`.
Status RunWithin(const std::string& text, DType act, double tolerance) {
  ExecutorOptions options = Options();
  options.activations = ops::Precision::kF32;
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  const Target cpu_target = {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
  PAGEMILL_RETURN_IF_ERROR(PrintProducts("cpu", program, cpu_target, options));
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<NativeExecutor> cpu,
                            NativeExecutor::Create(program, cpu_target, options));
  const auto steps = Steps(cpu->memory_plan().kv.TableBlockSizes());
  PAGEMILL_ASSIGN_OR_RETURN(const auto expected, OnCpu(*cpu, steps));
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(act));
  options.activation_type = act;
  TestDevice device;
  const Target target = {.ops = ops::testing::TestDeviceOps()};
  PAGEMILL_RETURN_IF_ERROR(PrintProducts("device", program, target, options));
  PAGEMILL_ASSIGN_OR_RETURN(
      std::unique_ptr<DeviceExecutor> executor,
      DeviceExecutor::Create(program, target, device, options, {.max_blocks = kBlocks + 1}));
  PAGEMILL_ASSIGN_OR_RETURN(const auto got, OnDevice(*executor, steps));
  return CompareWithin(expected, got, tolerance);
}

Status Run(const std::string& text, DType act) {
  ExecutorOptions options = Options();
  options.activation_type = act;
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(act));
  // The kernels that every CPU has, as on the test device.
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<NativeExecutor> cpu,
                            NativeExecutor::Create(program, {.ops = ops::CpuOps()}, options));
  const auto steps = Steps(cpu->memory_plan().kv.TableBlockSizes());
  PAGEMILL_ASSIGN_OR_RETURN(const auto expected, OnCpu(*cpu, steps));
  TestDevice device;
  const Target target = {.ops = ops::testing::TestDeviceOps()};
  for (const bool graphs : {false, true}) {
    DeviceExecutorOptions device_options = {.max_blocks = kBlocks + 1};
    if (graphs) device_options.graph_sizes.assign(std::begin(kGraphSizes), std::end(kGraphSizes));
    const int64_t replays = device.num_replays();
    PAGEMILL_ASSIGN_OR_RETURN(
        std::unique_ptr<DeviceExecutor> executor,
        DeviceExecutor::Create(program, target, device, options, device_options));
    PAGEMILL_ASSIGN_OR_RETURN(const auto got, OnDevice(*executor, steps));
    PAGEMILL_RETURN_IF_ERROR(Compare(expected, got, graphs ? "from graphs" : "kernel by kernel"));
    if (device.num_replays() - replays != (graphs ? kDecodes : 0)) {
      return Internal("graphs were replayed " + std::to_string(device.num_replays() - replays) +
                      " times");
    }
  }
  return OkStatus();
}

int Main(int argc, char** argv) {
  const DType types[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (DType act : types) {
    if ((argc != 3 && argc != 4) || argv[2] != Info(act).name) continue;
    std::ifstream file(argv[1]);
    std::ostringstream text;
    text << file.rdbuf();
    const Status status = argc == 3 ? Run(text.str(), act)
                                    : RunWithin(text.str(), act, std::strtod(argv[3], nullptr));
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  }
  std::fprintf(stderr, "usage: run_on_test_device PROGRAM_FILE f32|bf16|f16 [TOLERANCE]\n");
  return 2;
}

}  // namespace
}  // namespace pagemill::program

int main(int argc, char** argv) { return pagemill::program::Main(argc, argv); }
