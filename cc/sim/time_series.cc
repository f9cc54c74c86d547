#include "cc/sim/time_series.h"

#include <algorithm>

namespace pagemill::sim {
namespace {

void Merge(const TimeSeries::Point& from, TimeSeries::Point* into) {
  into->num_arrived += from.num_arrived;
  into->num_finished += from.num_finished;
  into->generated_tokens += from.generated_tokens;
  into->prompt_tokens += from.prompt_tokens;
  into->cached_tokens += from.cached_tokens;
  into->preemptions += from.preemptions;
  into->waiting_ns += from.waiting_ns;
  into->running_ns += from.running_ns;
  into->kv_blocks_ns += from.kv_blocks_ns;
  into->busy_ns += from.busy_ns;
}

}  // namespace

void TimeSeries::Halve() {
  for (size_t i = 1; i < points_.size(); ++i) {
    const Point point = points_[i];
    points_[i] = Point();
    Merge(point, &points_[i / 2]);
  }
  points_.resize((points_.size() + 1) / 2);
  width_ns_ *= 2;
}

TimeSeries::Point& TimeSeries::At(int64_t time_ns) {
  while (static_cast<size_t>(time_ns / width_ns_) >= kNumPoints) Halve();
  const auto index = static_cast<size_t>(time_ns / width_ns_);
  if (index >= points_.size()) points_.resize(index + 1);
  return points_[index];
}

void TimeSeries::Advance(int64_t time_ns, const Gauges& gauges) {
  At(time_ns);  // makes the intervals long enough for the whole span
  while (end_ns_ < time_ns) {
    const int64_t border = (end_ns_ / width_ns_ + 1) * width_ns_;
    const int64_t end = std::min(border, time_ns);
    Point& point = At(end_ns_);
    const auto span = static_cast<Uint128>(end - end_ns_);
    point.waiting_ns += span * static_cast<uint64_t>(gauges.num_waiting);
    point.running_ns += span * static_cast<uint64_t>(gauges.num_running);
    point.kv_blocks_ns += span * static_cast<uint64_t>(gauges.kv_blocks_used);
    point.busy_ns += span * static_cast<uint64_t>(gauges.engines_busy);
    end_ns_ = end;
  }
}

}  // namespace pagemill::sim
