// Runs a program on the CPU and on the test device (cc/device/testing), as device_parity.h says: all
// logits must have the same bits.
//
//   run_on_test_device PROGRAM_FILE f32|bf16|f16 [TOLERANCE]
//
// With a tolerance, the CPU computes in f32 with this machine's best kernels, and logits may differ
// by this fraction of the largest; the kernels of products and their packed layouts are printed:
// "cpu linear avx512 rows of blocks, version 1" or "device linear enqueued as stored".
//
// Exits with 0 if logits agree; else with 1 and a line that describes the difference.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/testing/test_device.h"
#include "cc/ops/op.h"
#include "cc/ops/testing/test_device_ops.h"
#include "cc/program/device/testing/device_parity.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/program.h"

namespace pagemill::program {
namespace {

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

Status PrintProducts(const std::string& text, DType act, const Target& device) {
  ExecutorOptions options = testing::ParityOptions();
  options.activations = ops::Precision::kF32;
  PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
  const Target cpu = {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
  PAGEMILL_RETURN_IF_ERROR(PrintProducts("cpu", program, cpu, options));
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(act));
  options.activation_type = act;
  return PrintProducts("device", program, device, options);
}

Status Run(const std::string& text, DType act, const char* tolerance) {
  device::testing::TestDevice device;
  const testing::DeviceUnderTest under_test = {.target = {.ops = ops::testing::TestDeviceOps()},
                                               .device = device,
                                               .num_replays = [&] { return device.num_replays(); }};
  if (tolerance == nullptr) return testing::CheckEqualLogits(text, act, under_test);
  PAGEMILL_RETURN_IF_ERROR(PrintProducts(text, act, under_test.target));
  return testing::CheckCloseLogits(text, act, std::strtod(tolerance, nullptr), under_test);
}

int Main(int argc, char** argv) {
  const DType types[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (DType act : types) {
    if ((argc != 3 && argc != 4) || argv[2] != Info(act).name) continue;
    std::ifstream file(argv[1]);
    std::ostringstream text;
    text << file.rdbuf();
    const Status status = Run(text.str(), act, argc == 4 ? argv[3] : nullptr);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  }
  std::fprintf(stderr, "usage: run_on_test_device PROGRAM_FILE f32|bf16|f16 [TOLERANCE]\n");
  return 2;
}

}  // namespace
}  // namespace pagemill::program

int main(int argc, char** argv) { return pagemill::program::Main(argc, argv); }
