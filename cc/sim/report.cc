#include "cc/sim/report.h"

#include <utility>

namespace pagemill::sim {
namespace {

void Append(const char* name, const Histogram& histogram, std::string* text) {
  *text += std::string(name) + " count " + std::to_string(histogram.count()) + " mean " +
           std::to_string(histogram.mean()) + " min " + std::to_string(histogram.min());
  for (int permille : {500, 900, 950, 990, 999}) {
    *text += " p" + std::to_string(permille) + " " + std::to_string(histogram.Quantile(permille));
  }
  *text += " max " + std::to_string(histogram.max()) + "\n";
}

// The mean of a gauge over an interval, in thousandths.
std::string Mean(Uint128 integral, int64_t width_ns) {
  return " " + std::to_string(static_cast<uint64_t>(integral * 1000 / width_ns));
}

}  // namespace

std::string Report::ToText() const {
  const std::pair<const char*, int64_t> rows[] = {
      {"num_engines", num_engines},
      {"kv_blocks_each", kv_blocks_each},
      {"duration_ns", duration_ns},
      {"num_finished", static_cast<int64_t>(num_finished)},
      {"num_refused", static_cast<int64_t>(num_refused)},
      {"num_failed", static_cast<int64_t>(num_failed)},
      {"prompt_tokens", static_cast<int64_t>(prompt_tokens)},
      {"cached_tokens", static_cast<int64_t>(cached_tokens)},
      {"generated_tokens", static_cast<int64_t>(generated_tokens)},
      {"preemptions", static_cast<int64_t>(preemptions)},
      {"num_steps", static_cast<int64_t>(num_steps)},
      {"step_tokens", static_cast<int64_t>(step_tokens)},
      {"step_requests", static_cast<int64_t>(step_requests)},
      {"busy_ns", busy_ns},
      {"compute_ns", compute_ns},
      {"memory_ns", memory_ns},
      {"least_busy_ns", least_busy_ns},
      {"most_busy_ns", most_busy_ns},
  };
  std::string text;
  for (const auto& [name, value] : rows) {
    text += std::string(name) + " " + std::to_string(value) + "\n";
  }
  Append("queueing", queueing, &text);
  Append("ttft", ttft, &text);
  Append("itl", itl, &text);
  Append("e2e", e2e, &text);
  const int64_t width = series.width_ns();
  text += "width_ns " + std::to_string(width) + "\n";
  for (const TimeSeries::Point& point : series.points()) {
    text += "point";
    for (uint64_t n : {point.num_arrived, point.num_finished, point.generated_tokens,
                       point.prompt_tokens, point.cached_tokens, point.preemptions}) {
      text += " " + std::to_string(n);
    }
    text += Mean(point.waiting_ns, width) + Mean(point.running_ns, width) +
            Mean(point.kv_blocks_ns, width) + Mean(point.busy_ns, width) + "\n";
  }
  return text;
}

}  // namespace pagemill::sim
