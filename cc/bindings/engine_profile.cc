#include "cc/bindings/engine_profile.h"

namespace pagemill::bindings {

// Executors may outlive the clock.
EngineProfile::~EngineProfile() {
  for (const auto& [executor, track] : executors_) executor->Record(nullptr, track);
}

Status EngineProfile::Attach(const std::shared_ptr<Timeline>& timeline) {
  return engine_->Record(timeline, [this, &timeline] {
    for (const auto& [executor, track] : executors_) executor->Record(timeline, track);
  });
}

Status EngineProfile::Start(const TimelineOptions& options, std::string path) {
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  const std::lock_guard lock(mutex_);
  if (timeline_ != nullptr) {
    return FailedPrecondition("a profile is being taken: end it with /stop_profile first");
  }
  auto timeline = std::make_shared<Timeline>(options, &clock_);
  PAGEMILL_RETURN_IF_ERROR(Attach(timeline));
  timeline_ = std::move(timeline);
  path_ = std::move(path);
  return OkStatus();
}

StatusOr<EngineProfile::Result> EngineProfile::Stop() {
  const std::lock_guard lock(mutex_);
  if (timeline_ == nullptr) {
    return FailedPrecondition("no profile is being taken: begin one with /start_profile");
  }
  PAGEMILL_RETURN_IF_ERROR(Attach(nullptr));
  const std::shared_ptr<Timeline> timeline = std::exchange(timeline_, nullptr);
  PAGEMILL_RETURN_IF_ERROR(timeline->WriteChromeTrace(path_));
  return Result{.path = path_,
                .num_events = timeline->num_events(),
                .num_steps = timeline->num_steps(),
                .complete = !timeline->full()};
}

}  // namespace pagemill::bindings
