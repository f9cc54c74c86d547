// File: cc/program/device/step_image.h
// The arrays of a step in one piece of memory, for devices that receive them by copy: one copy per
// step, and addresses that depend only on the step's sizes, so that graphs recorded for these sizes
// stay valid.
//
//   StepImage image(program, layout, /*max_blocks=*/128);
//   StepImage::Staging staging{.data = host_memory.data()};     // kept for later steps
//   image.Write(batch, sizes, &staging);                        // on the host
//   stream->CopyToDevice(memory, host_memory.bytes().first(image.Bytes(sizes)));
//   calls.Set(image.View(sizes, memory));                       // device addresses
//
// `sizes` are those of the batch, or larger: the batch is then padded with requests of one token
// (ops::Padding), of which the last one has all tokens that are left. So if there are padding
// tokens, there must be at least one padding request, and at most as many as tokens.
//
// Block tables are as wide as the longest request may need. Write() copies the entries that a
// request's tokens have, and zeroes those of the step before it in the same staging memory: if the
// sizes are those of that step, it costs O(tokens + blocks of the requests), else O(the image).
// Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_STEP_IMAGE_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_STEP_IMAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "cc/ops/batch_view.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"

namespace pagemill::program {

class StepImage {
 public:
  // Host memory for an image, which nothing else writes to.
  struct Staging {
    std::byte* data = nullptr;
    std::optional<StepSizes> sizes = {};  // of the image that was written last
    std::vector<int64_t> used = {};       // of each row of each block table: the rest is zero
  };

  // Includes the optional arrays that `program` declares. `max_blocks`: columns of every block
  // table; a batch may have fewer.
  StepImage(const Program& program, const KvLayout& layout, int64_t max_blocks);

  int64_t max_blocks() const { return max_blocks_; }
  int64_t Bytes(const StepSizes& sizes) const;
  void Write(const ops::StepBatch& batch, const StepSizes& sizes, Staging* to);
  // The batch that was written, at `base`, which is not dereferenced. Valid until the next call.
  // Numbers that hold for one batch only (num_common_blocks, argmax_columns) are 0.
  ops::StepBatch View(const StepSizes& sizes, const std::byte* base);

 private:
  template <typename Body>
  int64_t ForEachArray(const StepSizes& sizes, const Body& body) const;
  void WriteTable(const ops::StepBatch& batch, size_t table, std::span<int64_t> used,
                  int32_t* to) const;
  void GrowLastRequest(const StepSizes& sizes, int64_t first, std::byte* image);

  const int64_t max_blocks_;
  std::array<bool, std::size(ops::kStepArrays)> declared_;
  std::vector<ops::KvArrays> kv_;  // per block table
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_STEP_IMAGE_H_
