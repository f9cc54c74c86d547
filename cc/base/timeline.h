// File: cc/base/timeline.h
// Intervals of time that the engine's thread records while a profile is taken, and their file in
// Chrome's trace format, which Perfetto opens.
//
//   Timeline timeline({.max_steps = 100}, &clock);
//   const Timeline::LabelId execute = timeline.AddLabel(Timeline::Track::kSteps, "execute");
//   const int64_t begin = timeline.Now();
//   ...
//   timeline.Add(execute, begin, {.requests = 3, .tokens = 40});  // from `begin` to now
//   PAGEMILL_RETURN_IF_ERROR(timeline.WriteChromeTrace("profile.json"));
//
// Bounded: once it is full() it records nothing more. It allocates its events at the beginning.
// Thread safety: none; one thread records, and another may write the file once that has stopped.
#ifndef PAGEMILL_CC_BASE_TIMELINE_H_
#define PAGEMILL_CC_BASE_TIMELINE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/status.h"
#include "cc/base/strong_id.h"

namespace pagemill {

struct TimelineOptions {
  int64_t max_events = 200'000;  // about 25 MB of the file
  int64_t max_steps = 0;         // 0: no limit
  int64_t max_seconds = 60;

  // kInvalidArgument unless max_events is 1 to 10 million and max_seconds 1 to 3,600.
  Status Validate() const;
};

// Shown with an interval; negative: not said.
struct IntervalCounts {
  int64_t requests = -1;
  int64_t tokens = -1;
};

class Timeline {
 public:
  // Rows of the picture.
  enum class Track : uint8_t { kSteps, kModel, kDraftModel, kEncoder };
  using LabelId = StrongId<struct LabelTag, int32_t>;
  using Details = std::vector<std::pair<std::string, std::string>>;

  // `clock` outlives the timeline.
  Timeline(const TimelineOptions& options, const Clock* clock);

  // What intervals are of; the details, name and value, are shown with each.
  LabelId AddLabel(Track track, std::string name, Details details = {});

  int64_t Now() const { return clock_->NowNanos(); }
  // An interval from `begin_ns` to now.
  void Add(LabelId label, int64_t begin_ns, const IntervalCounts& counts = {});
  // A step has begun.
  void CountStep() { ++num_steps_; }
  // True once a bound is reached.
  bool full() const { return full_; }

  int64_t num_events() const { return static_cast<int64_t>(events_.size()); }
  int64_t num_steps() const { return num_steps_; }

  // kInvalidArgument if the file cannot be written.
  Status WriteChromeTrace(const std::string& path) const;

 private:
  struct Label {
    Track track;
    std::string name;
    Details details;
  };
  struct Event {
    LabelId label;
    int64_t begin_ns;
    int64_t end_ns;
    IntervalCounts counts;
  };
  bool Exceeds(int64_t now_ns) const;
  std::string ToJson(const Event& event) const;

  const TimelineOptions options_;
  const Clock* const clock_;
  const int64_t begin_ns_;
  std::vector<Label> labels_;
  std::vector<Event> events_;
  int64_t num_steps_ = 0;
  bool full_ = false;
};

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_TIMELINE_H_
