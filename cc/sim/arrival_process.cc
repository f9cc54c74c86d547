#include "cc/sim/arrival_process.h"

namespace pagemill::sim {
namespace {

struct Row {
  std::string_view name;
  int64_t (*next_gap)(const ArrivalOptions&, Random*);
};

int64_t ConstantGap(const ArrivalOptions& options, Random*) { return options.mean_gap_ns; }

int64_t PoissonGap(const ArrivalOptions& options, Random* random) {
  return random->Exponential(options.mean_gap_ns);
}

int64_t BurstyGap(const ArrivalOptions& options, Random* random) {
  if (random->Below(static_cast<uint64_t>(options.mean_burst)) != 0) return 0;
  return random->Exponential(options.mean_gap_ns * options.mean_burst);
}

constexpr Row kProcesses[] = {
    {"bursty", BurstyGap},
    {"constant", ConstantGap},
    {"poisson", PoissonGap},
};

const Row* Find(const std::string& name) {
  for (const Row& row : kProcesses) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace

Status ArrivalOptions::Validate() const {
  if (Find(process) == nullptr) {
    std::string known;
    for (const Row& row : kProcesses) known += (known.empty() ? "" : ", ") + std::string(row.name);
    return InvalidArgument("arrivals.process is \"" + process + "\", it must be one of " + known);
  }
  // Longer gaps (73 minutes) would overflow the time of a burst.
  if (mean_gap_ns < 1 || mean_gap_ns > int64_t{1} << 42) {
    return InvalidArgument("arrivals.mean_gap_ns is " + std::to_string(mean_gap_ns) +
                           ", it must be from 1 to 2^42");
  }
  if (mean_burst < 1 || mean_burst > 10000) {
    return InvalidArgument("arrivals.mean_burst is " + std::to_string(mean_burst) +
                           ", it must be from 1 to 10000");
  }
  return OkStatus();
}

ArrivalProcess::ArrivalProcess(const ArrivalOptions& options)
    : next_gap_(Find(options.process)->next_gap), options_(options) {}

}  // namespace pagemill::sim
