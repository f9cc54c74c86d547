// File: cc/program/device/step_image.h
// The arrays of a step as one piece of memory, for devices that have to be sent them: one copy a
// step, and addresses that depend on the sizes of the step alone, so that work which was recorded
// for these sizes finds them again.
//
//   StepImage image(program, layout, /*max_blocks=*/128);
//   image.Write(batch, sizes, staging);                         // on the host
//   stream->CopyToDevice(memory, staging.first(image.Bytes(sizes)));
//   calls.Set(image.View(sizes, memory));                       // as kernels of the device see it
//
// `sizes` are those of the batch, or larger by the same number of tokens, requests and logits rows:
// the batch is then padded with requests of one token (ops::Padding). Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_STEP_IMAGE_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_STEP_IMAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "cc/ops/batch_view.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"

namespace pagemill::program {

class StepImage {
 public:
  // Of arrays that a step has only if they are declared, it holds those that `program` does.
  // `max_blocks`: columns of every block table, of which a batch may have fewer.
  StepImage(const Program& program, const KvLayout& layout, int64_t max_blocks);

  int64_t max_blocks() const { return max_blocks_; }
  int64_t Bytes(const StepSizes& sizes) const;
  void Write(const ops::StepBatch& batch, const StepSizes& sizes, std::byte* to) const;
  // The batch that was written, at `base`, an address that is not read. Valid until the next call.
  // Numbers that hold for one batch only (num_common_blocks, argmax_columns) are 0.
  ops::StepBatch View(const StepSizes& sizes, const std::byte* base);

 private:
  template <typename Body>
  int64_t ForEachArray(const StepSizes& sizes, const Body& body) const;

  const int64_t max_blocks_;
  std::array<bool, std::size(ops::kStepArrays)> declared_;
  std::vector<ops::KvArrays> kv_;  // of each block table
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_STEP_IMAGE_H_
