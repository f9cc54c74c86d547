// File: cc/program/device/step_graphs.h
// The graphs that small steps are replayed from. A step is padded to the sizes of a bucket; work
// that was recorded for these sizes then serves every step of the bucket.
//
//   StepGraphs graphs({.max_sizes = sizes, .max_tokens = 256});
//   const std::optional<StepSizes> bucket = graphs.BucketOf(ops::SizesOf(batch));
//   ... enqueue the batch, padded to *bucket ...
//   PAGEMILL_RETURN_IF_ERROR(
//       graphs.Run(*bucket, /*with_adapters=*/false, step, num_done, *stream, [&] { kernels }));
//
// The first step of a bucket enqueues its kernels one by one, so that whatever they load when they
// first run is loaded outside of a capture. The second records them. If as many graphs exist as may
// be kept, that of the bucket that was used longest ago is dropped.
//
// Sizes are 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: at most a third of a size is padding. A step in
// which each request has one token and a row of logits is padded to n requests. Others are padded
// to a number of requests and one of tokens, of which the last padding request takes the rest, with
// a row of logits for each request or, if those do not suffice, for each token. Steps with and
// without adapters (StepArrays::adapter_slots) have buckets of their own.
//
// Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_STEP_GRAPHS_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_STEP_GRAPHS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "cc/base/status.h"
#include "cc/device/stream.h"
#include "cc/ops/batch_view.h"

namespace pagemill::program {

struct StepGraphOptions {
  ops::StepSizes max_sizes;        // of all steps
  int64_t max_tokens = 0;          // of a bucket
  int64_t max_padding_tokens = 0;  // of one padding request
  int64_t max_graphs = 1;          // kept at the same time
};

class StepGraphs {
 public:
  explicit StepGraphs(const StepGraphOptions& options) : options_(options) {}

  // The sizes to pad a step to; none if it is not replayed: it has too many tokens, media rows, or
  // no room for padding.
  std::optional<ops::StepSizes> BucketOf(const ops::StepSizes& step) const;

  // Enqueues step number `step` of a bucket, by a graph or by `enqueue`. Steps before number
  // `num_done` are done. Returns errors of recording, except kResourceExhausted: then no more
  // graphs are kept than there are.
  Status Run(const ops::StepSizes& bucket, bool with_adapters, int64_t step, int64_t num_done,
             device::Stream& stream, const std::function<void()>& enqueue);

  int64_t num_graphs() const { return num_graphs_; }

 private:
  // Tokens, requests, rows of logits; with adapters.
  using Key = std::tuple<int64_t, int64_t, int64_t, bool>;
  struct Bucket {
    std::unique_ptr<device::Graph> graph;  // null until it is recorded
    int64_t last_step = 0;                 // that was replayed
  };

  bool MakeRoom(int64_t num_done);

  StepGraphOptions options_;
  std::map<Key, Bucket> buckets_;  // those that steps have had
  int64_t num_graphs_ = 0;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_STEP_GRAPHS_H_
