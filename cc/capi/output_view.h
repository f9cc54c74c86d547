// File: cc/capi/output_view.h
// An output of the engine as the C struct, with the memory that the struct points into.
//
//   OutputView view(std::move(output));
//   CopyOut(view.ToC(), host_struct);   // valid as long as `view`, also where it is moved to
//
// Thread safety: none.
#ifndef PAGEMILL_CC_CAPI_OUTPUT_VIEW_H_
#define PAGEMILL_CC_CAPI_OUTPUT_VIEW_H_

#include <optional>
#include <utility>
#include <vector>

#include "cc/capi/pagemill.h"
#include "cc/engine/request_output.h"
#include "cc/step/step_result.h"

namespace pagemill::capi {

class OutputView {
 public:
  OutputView() = default;
  explicit OutputView(engine::RequestOutput output);
  OutputView(OutputView&&) = default;
  OutputView& operator=(OutputView&&) = default;

  const engine::RequestOutput& output() const { return output_; }
  pagemill_output ToC() const;

 private:
  // One array of all alternatives, which the entries point into.
  struct Logprobs {
    std::vector<pagemill_token_value> top;
    std::vector<pagemill_token_logprobs> entries;
  };
  static Logprobs Convert(const std::optional<std::vector<step::TokenLogprobs>>& from);

  engine::RequestOutput output_;
  Logprobs logprobs_;
  Logprobs prompt_logprobs_;
  std::vector<pagemill_string_pair> kv_transfer_params_;
};

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_OUTPUT_VIEW_H_
