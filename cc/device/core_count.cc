#include "cc/device/core_count.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace pagemill::device {
namespace {

std::optional<std::string> FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int64_t> Integer(const std::string& path) {
  const std::optional<std::string> line = FirstLine(path);
  if (!line) return std::nullopt;
  char* end = nullptr;
  const int64_t value = std::strtoll(line->c_str(), &end, 10);
  if (end == line->c_str()) return std::nullopt;
  return value;
}

int32_t PhysicalCores(const CoreCountSources& sources) {
  std::set<std::pair<int64_t, int64_t>> cores;  // (package, core)
  for (int32_t cpu : sources.allowed_cpus) {
    const std::string topology =
        sources.sysfs_root + "/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::optional<int64_t> core = Integer(topology + "core_id");
    const std::optional<int64_t> package = Integer(topology + "physical_package_id");
    // An unknown core counts as one of its own: a negative key equals no real id.
    cores.insert(core ? std::pair(package.value_or(0), *core)
                      : std::pair(int64_t{-1}, int64_t{cpu}));
  }
  return std::max<int32_t>(1, static_cast<int32_t>(cores.size()));
}

// CPUs' worth of time per period: cgroup v2's "max 100000" or "150000 100000".
std::optional<double> QuotaV2(const std::string& directory) {
  const std::optional<std::string> line = FirstLine(directory + "/cpu.max");
  if (!line) return std::nullopt;
  std::istringstream words(*line);
  double quota = 0;
  double period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> QuotaV1(const std::string& directory) {
  const std::optional<int64_t> quota = Integer(directory + "/cpu.cfs_quota_us");
  const std::optional<int64_t> period = Integer(directory + "/cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// True if the comma-separated list of v1 controllers contains "cpu".
bool NamesCpuController(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

double TightestQuota(const CoreCountSources& sources) {
  double tightest = std::numeric_limits<double>::infinity();
  std::ifstream groups(sources.procfs_root + "/self/cgroup");
  // Lines "hierarchy:controllers:path"; hierarchy 0 without controllers is v2.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && !NamesCpuController(controllers)) continue;
    const std::string mount = sources.sysfs_root + "/fs/cgroup" + (v2 ? "" : "/cpu");
    std::string path = line.substr(second + 1);
    while (true) {
      if (path == "/") path.clear();
      const std::optional<double> quota = v2 ? QuotaV2(mount + path) : QuotaV1(mount + path);
      if (quota) tightest = std::min(tightest, *quota);
      if (path.empty()) break;
      const size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return tightest;
}

}  // namespace

std::vector<int32_t> AllowedCpus() {
  std::vector<int32_t> cpus;
  // The mask's size is not known beforehand; the kernel refuses one that is too small.
  for (int size = 1024; size <= (1 << 18); size *= 4) {
    cpu_set_t* set = CPU_ALLOC(size);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(size);
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; known && cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (known) break;
  }
  return cpus;
}

int32_t CountCores(const CoreCountSources& sources) {
  const int32_t cores = PhysicalCores(sources);
  const double quota = TightestQuota(sources);
  if (quota >= cores) return cores;
  return std::max<int32_t>(1, static_cast<int32_t>(quota));
}

}  // namespace pagemill::device
