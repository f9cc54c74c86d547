// What the machine can do at most, measured.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "cc/bindings/bindings.h"
#include "cc/bindings/status_error.h"
#include "cc/device/cache_sizes.h"
#include "cc/device/capabilities.h"
#include "cc/device/core_count.h"
#include "cc/device/cpu_share.h"
#include "cc/device/machine_limits.h"
#include "cc/device/numa.h"
#include "cc/device/thread_pool.h"

namespace pagemill::bindings {

namespace nb = nanobind;

namespace {

using PeakNames = std::tuple<std::string, std::string, std::string>;
using CacheNumbers = std::tuple<int32_t, int64_t, int32_t>;

// 0 threads are one for each core, as everywhere.
device::ThreadPoolOptions PoolOptions(int32_t threads, const device::Capabilities& caps) {
  if (threads < 0) ThrowIfError(InvalidArgument("threads must not be negative"));
  return {.num_threads = std::max(1, threads > 0 ? threads : caps.cpu.cores), .spin_us = 1000};
}

std::vector<PeakNames> PresentPeaks() {
  std::vector<PeakNames> names;
  for (device::Peak& peak : device::PresentPeaks(device::DetectCapabilities())) {
    names.emplace_back(peak.isa, peak.format, peak.operands);
  }
  return names;
}

double MeasurePeak(const PeakNames& names, int32_t threads, double seconds) {
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool(PoolOptions(threads, caps));
  const auto& [isa, format, operands] = names;
  return ValueOrThrow(device::MeasurePeak(caps, {isa, format, operands}, pool, seconds));
}

double MeasureReadBandwidth(int64_t bytes, int32_t threads, double seconds) {
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool(PoolOptions(threads, caps));
  return ValueOrThrow(
      device::MeasureReadBandwidth(caps, {.bytes = bytes, .seconds = seconds}, pool));
}

std::vector<CacheNumbers> DataCaches() {
  std::vector<CacheNumbers> numbers;
  for (const device::CacheSize& cache : device::DataCaches()) {
    numbers.emplace_back(cache.level, cache.bytes, cache.cpus);
  }
  return numbers;
}

std::string MemoryPlacement(int32_t ranks) {
  const std::vector<int32_t> allowed = device::AllowedCpus();
  const std::vector<int32_t> share = device::CpuShare(allowed, /*index=*/0, std::max(1, ranks));
  return device::PlacementFor(share.empty() ? allowed : share, device::NumaNodes()).Description();
}

std::vector<int32_t> CpuShare(int32_t index, int32_t count) {
  if (count < 1 || index < 0 || index >= count) {
    ThrowIfError(InvalidArgument("share " + std::to_string(index) + " of " + std::to_string(count) +
                                 " does not exist"));
  }
  return device::CpuShare(device::AllowedCpus(), index, count);
}

}  // namespace

void BindMachineLimits(nb::module_& m) {
  m.def("present_peaks", &PresentPeaks);
  m.def("measure_peak", &MeasurePeak, nb::arg("peak"), nb::kw_only(), nb::arg("threads") = 0,
        nb::arg("seconds") = 0.1, nb::call_guard<nb::gil_scoped_release>());
  m.def("measure_read_bandwidth", &MeasureReadBandwidth, nb::arg("size_bytes"), nb::kw_only(),
        nb::arg("threads") = 0, nb::arg("seconds") = 0.1, nb::call_guard<nb::gil_scoped_release>());
  m.def("data_caches", &DataCaches);
  m.def("memory_placement", &MemoryPlacement, nb::kw_only(), nb::arg("ranks") = 1);
  m.def("cpu_share", &CpuShare, nb::arg("index"), nb::arg("count"));
}

}  // namespace pagemill::bindings
