// File: cc/capi/testing/fake_host_runner.h
// A runner as a host of the C ABI writes one: functions that turn the C structs back into a plan
// and let step::FakeModel run it. The fake model checks every plan, so a field that the C structs
// lose or change shows. For tests.
//
//   FakeHostRunner host;
//   FakeHostRunner::Configure(&options);   // the limits
//   options.runner = host.runner();
//   ... greedy tokens are step::FakeModel::Continue(prompt, n, FakeHostRunner::kVocab)
//
// Thread safety: fields may be changed while no step runs.
#ifndef PAGEMILL_CC_CAPI_TESTING_FAKE_HOST_RUNNER_H_
#define PAGEMILL_CC_CAPI_TESTING_FAKE_HOST_RUNNER_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/capi/pagemill.h"
#include "cc/step/fake_model.h"

namespace pagemill::capi {

class FakeHostRunner {
 public:
  static constexpr int32_t kVocab = 97;

  FakeHostRunner();
  pagemill_runner* runner() { return &runner_; }
  static void Configure(pagemill_engine_options* options);

  // Called at the begin of each collect with the results' destination; not OK: returned.
  std::function<pagemill_status(pagemill_step_result*)> on_collect;
  bool asleep = false;
  int64_t second_text_start = 0;  // of the request that started last
  // The plan of a C struct.
  step::StepPlan ToPlan(const pagemill_step& step);

 private:
  static pagemill_status Execute(void* self, const pagemill_step* step);
  static pagemill_status Collect(void* self, const pagemill_step* step,
                                 pagemill_step_result* result);
  static pagemill_status Add(const step::RequestResult& from, pagemill_step_result* to);

  step::FakeModel model_;
  pagemill_runner runner_;
  std::deque<StatusOr<step::StepResult>> results_;  // executed and not collected
};

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_TESTING_FAKE_HOST_RUNNER_H_
