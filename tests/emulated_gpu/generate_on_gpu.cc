// Runs a program on the CPU and on the emulated GPU (cuda/emulation), with f32 activations and
// caches: logits of the same steps are close (cc/program/device/testing/device_parity.h), and greedy
// requests through engine and native runner get the same tokens, with two steps in flight and graphs.
//
//   generate_on_gpu PROGRAM_FILE TOLERANCE
//
// Exits with 0 if they do; else with 1 and a line that describes the difference.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/program/device/testing/device_parity.h"
#include "cc/tensor/dtype.h"
#include "cuda/testing/gpu_under_test.h"
#include "tests/generation/device_generation.h"

namespace pagemill::testing {
namespace {

Status Run(const std::string& text, double tolerance) {
  const gpu::GpuUnderTest gpu;
  PAGEMILL_RETURN_IF_ERROR(
      program::testing::CheckCloseLogits(text, DType::kF32, tolerance, gpu.under_test));
  std::vector<step::Request> requests = GreedyRequests(/*seed=*/5);
  requests.resize(3);
  // In f32, as the logits: random models have tokens that are nearly as likely as others.
  DeviceRun run = {.kv_cache = DType::kF32, .steps_in_flight = 0};
  PAGEMILL_ASSIGN_OR_RETURN(const Generated cpu, Generate(text, requests, run));
  run.steps_in_flight = 2;
  run.graphs = true;
  run.device = &gpu.under_test;
  PAGEMILL_ASSIGN_OR_RETURN(const Generated got, Generate(text, requests, run));
  if (got.outputs != cpu.outputs) return Internal("tokens differ");
  return got.num_replays > 0 ? OkStatus() : Internal("no graph was replayed");
}

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: generate_on_gpu PROGRAM_FILE TOLERANCE\n");
    return 2;
  }
  std::ifstream file(argv[1]);
  std::ostringstream text;
  text << file.rdbuf();
  const Status status = Run(text.str(), std::strtod(argv[2], nullptr));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace pagemill::testing

int main(int argc, char** argv) { return pagemill::testing::Main(argc, argv); }
