// File: cc/engine/step_timeline.h
// Where the engine's thread records the parts of its steps, if a profile is being taken.
//
//   step_timeline_.Set(timeline);  // null: no longer
//   step_timeline_.CountStep();
//   {
//     const auto scope = step_timeline_.Measure(StepPart::kExecute, &plan_);
//     ...
//   }
//
// While it is off, a scope compares a pointer. Thread safety: none, the thread's own.
#ifndef PAGEMILL_CC_ENGINE_STEP_TIMELINE_H_
#define PAGEMILL_CC_ENGINE_STEP_TIMELINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "cc/base/timeline.h"
#include "cc/step/step_plan.h"

namespace pagemill::engine {

enum class StepPart : uint8_t {
  kPlan,     // the scheduler chooses what runs
  kExecute,  // the forward pass starts; on the CPU it runs here
  kSample,
  kCollect,  // waits for the oldest step's result
  kUpdate,   // the scheduler takes the result
  kPublish,  // outputs go to clients
};
inline constexpr std::array kStepPartNames = {"plan",    "execute", "sample",
                                              "collect", "update",  "publish"};

class StepTimeline {
 public:
  // Records the time of its life.
  class Scope {
   public:
    Scope(Timeline* timeline, Timeline::LabelId label, const IntervalCounts& counts)
        : timeline_(timeline), label_(label), counts_(counts) {
      if (timeline_ != nullptr) begin_ns_ = timeline_->Now();
    }
    ~Scope() {
      if (timeline_ != nullptr) timeline_->Add(label_, begin_ns_, counts_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Timeline* const timeline_;
    const Timeline::LabelId label_;
    const IntervalCounts counts_;
    int64_t begin_ns_ = 0;
  };

  void Set(std::shared_ptr<Timeline> timeline) {
    timeline_ = std::move(timeline);
    if (timeline_ == nullptr) return;
    for (size_t part = 0; part < labels_.size(); ++part) {
      labels_[part] = timeline_->AddLabel(Timeline::Track::kSteps, kStepPartNames[part]);
    }
  }

  void CountStep() {
    if (timeline_ != nullptr) timeline_->CountStep();
  }

  // `plan`: whose requests and tokens are shown; null: none.
  Scope Measure(StepPart part, const step::StepPlan* plan = nullptr) const {
    if (timeline_ == nullptr || timeline_->full()) return {nullptr, {}, {}};
    IntervalCounts counts;
    if (plan != nullptr) {
      counts = {.requests = static_cast<int64_t>(plan->scheduled.size()),
                .tokens = plan->total_num_tokens};
    }
    return {timeline_.get(), labels_[static_cast<size_t>(part)], counts};
  }

 private:
  std::shared_ptr<Timeline> timeline_;  // null: off
  std::array<Timeline::LabelId, kStepPartNames.size()> labels_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_STEP_TIMELINE_H_
