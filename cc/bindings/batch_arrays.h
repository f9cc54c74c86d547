// File: cc/bindings/batch_arrays.h
// A step's batch as numpy arrays, both ways, by the names of the table in cc/ops/batch_view.h:
//
//   {"token_ids": int32[tokens], ..., "kv": [{"block_size": 16, "num_common_blocks": 0,
//    "slot_mapping": int32[tokens], "block_table": int32[requests, blocks]}, ...]}
//
// with an entry of "kv" for each block table. To a program that declares inputs besides these, the
// batch has them by name as f32 arrays: {"inputs": {"layer.3": float32[tokens, 64]}, ...}; they are
// rounded to the type that the program says.
#ifndef PAGEMILL_CC_BINDINGS_BATCH_ARRAYS_H_
#define PAGEMILL_CC_BINDINGS_BATCH_ARRAYS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "cc/ops/batch_view.h"
#include "cc/program/kv/kv_layout.h"
#include "cc/program/program.h"

namespace pagemill::bindings {

// Read-only views of the batch's arrays. They are valid as long as the batch: for one step. The
// inputs of the program, which are f32, are a list "inputs", in its order.
nanobind::dict BatchToArrays(const ops::StepBatch& batch);

// A batch over arrays that Python made, which it keeps.
class BatchArrays {
 public:
  // Checks lengths, order and ranges, so that no kernel reads beyond an array or the pages of
  // `layout`. Throws StatusException (kInvalidArgument).
  BatchArrays(const nanobind::dict& arrays, const program::Program& program,
              const program::KvLayout& layout);

  const ops::StepBatch& batch() const { return batch_; }

 private:
  template <typename Arrays>
  void Read(const nanobind::dict& from, Arrays* to);
  void ReadInputs(const nanobind::dict& from, const program::Program& program);
  void CheckStep() const;
  void CheckTable(const ops::KvArrays& table, int32_t num_pages) const;

  using Array = nanobind::ndarray<const int32_t, nanobind::c_contig, nanobind::device::cpu>;
  std::vector<Array> kept_;
  std::vector<ops::KvArrays> tables_;
  std::vector<std::vector<std::byte>> input_bytes_;
  std::vector<TensorView> inputs_;
  ops::StepBatch batch_;
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_BATCH_ARRAYS_H_
