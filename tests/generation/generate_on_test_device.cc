// Generates with a program on the test device, with one step in flight and with two, kernel by
// kernel and from graphs, with drafts and without, and on the CPU: greedy requests, then greedy and
// sampled ones together. All requests must get the same tokens each time.
//
//   generate_on_test_device PROGRAM_FILE f32|bf16|f16
//
// Exits with 0 if they do; else with 1 and a line that describes the difference.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/tensor/dtype.h"
#include "tests/generation/device_generation.h"

namespace pagemill::testing {
namespace {

std::string NameOf(const DeviceRun& run) {
  return std::to_string(run.steps_in_flight) + " steps in flight, " +
         (run.graphs ? "from graphs" : "kernel by kernel") + (run.drafts ? ", drafts" : "");
}

Status Check(const Generated& got, const Generated& expected, const DeviceRun& run) {
  if (got.outputs != expected.outputs) return Internal(NameOf(run) + ": tokens differ");
  if ((got.num_replays > 0) != run.graphs) {
    return Internal(NameOf(run) + ": " + std::to_string(got.num_replays) + " replays");
  }
  // Most steps overlap: all with a preceding step to wait for.
  const bool overlap = got.num_overlapping_steps > got.num_steps / 2;
  if (overlap == (run.steps_in_flight == 2)) return OkStatus();
  return Internal(NameOf(run) + ": " + std::to_string(got.num_overlapping_steps) + " of " +
                  std::to_string(got.num_steps) + " steps overlap");
}

// Whether text repeats itself, so that some n-gram drafts are right: greedy text does, unless the
// model has states; sampled text may not.
enum class Text { kRepeats, kMayNotRepeat };

// Steps that verify drafts differ in size: few are replayed, and few overlap.
Status RunWithDrafts(const std::string& text, const std::vector<step::Request>& requests, Text kind,
                     const Generated& expected, DeviceRun run) {
  run.drafts = true;
  for (const int32_t steps_in_flight : {0, 1, 2, 4}) {
    run.steps_in_flight = steps_in_flight;
    run.graphs = steps_in_flight == 2;
    PAGEMILL_ASSIGN_OR_RETURN(const Generated got, Generate(text, requests, run));
    if (got.outputs != expected.outputs) return Internal(NameOf(run) + ": tokens differ");
    if (kind == Text::kRepeats && got.stats.accepted_draft_tokens == 0) {
      return Internal(NameOf(run) + ": no draft is accepted");
    }
  }
  return OkStatus();
}

Status RunRequests(const std::string& text, const std::vector<step::Request>& requests, Text kind,
                   DType act) {
  PAGEMILL_ASSIGN_OR_RETURN(const Generated expected,
                            Generate(text, requests, {.act = act, .steps_in_flight = 0}));
  for (const bool graphs : {false, true}) {
    for (const int32_t steps_in_flight : {1, 2}) {
      const DeviceRun run = {.act = act, .steps_in_flight = steps_in_flight, .graphs = graphs};
      PAGEMILL_ASSIGN_OR_RETURN(const Generated got, Generate(text, requests, run));
      PAGEMILL_RETURN_IF_ERROR(Check(got, expected, run));
    }
  }
  return RunWithDrafts(text, requests, kind, expected, {.act = act});
}

Status Run(const std::string& text, DType act) {
  const bool has_states = text.find("state_space") != std::string::npos;
  const Text greedy = has_states ? Text::kMayNotRepeat : Text::kRepeats;
  PAGEMILL_RETURN_IF_ERROR(RunRequests(text, GreedyRequests(/*seed=*/5), greedy, act));
  return RunRequests(text, SampledRequests(/*seed=*/5), Text::kMayNotRepeat, act);
}

int Main(int argc, char** argv) {
  for (const DType act : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (argc != 3 || argv[2] != Info(act).name) continue;
    std::ifstream file(argv[1]);
    std::ostringstream text;
    text << file.rdbuf();
    const Status status = Run(text.str(), act);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  }
  std::fprintf(stderr, "usage: generate_on_test_device PROGRAM_FILE f32|bf16|f16\n");
  return 2;
}

}  // namespace
}  // namespace pagemill::testing

int main(int argc, char** argv) { return pagemill::testing::Main(argc, argv); }
