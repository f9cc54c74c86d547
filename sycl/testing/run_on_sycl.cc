// Runs a program on the CPU and on the CPU as a SYCL device
// (cc/program/device/testing/device_parity.h).
//
//   run_on_sycl PROGRAM_FILE f32|bf16|f16 TOLERANCE MAX_FAR_ROWS
//
// Exits with 0 if logits and tokens agree; else with 1 and a line that describes the difference.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "cc/program/device/testing/device_parity.h"
#include "cc/tensor/dtype.h"
#include "sycl/device/testing/cpu_device.h"
#include "sycl/testing/sycl_ops.h"

namespace pagemill::sycl {
namespace {

int Main(int argc, char** argv) {
  const std::optional<DType> act = argc == 5 ? ParseDType(argv[2]) : std::nullopt;
  if (!act) {
    std::fprintf(stderr, "usage: run_on_sycl PROGRAM_FILE f32|bf16|f16 TOLERANCE MAX_FAR_ROWS\n");
    return 2;
  }
  std::ifstream file(argv[1]);
  std::ostringstream text;
  text << file.rdbuf();
  const std::unique_ptr<SyclDevice> device = testing::OpenCpuDevice();
  const Status status = program::testing::CheckCloseLogits(
      text.str(), *act, std::strtod(argv[3], nullptr),
      {.target = {.ops = SyclOps(), .capabilities = device->capabilities()},
       .device = *device,
       .num_replays = [&] { return device->num_replays(); }},
      std::strtol(argv[4], nullptr, 10));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace pagemill::sycl

int main(int argc, char** argv) { return pagemill::sycl::Main(argc, argv); }
