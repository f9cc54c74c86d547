// File: cc/bindings/batch_arrays.h
// A step's batch as numpy arrays, both ways. Array names are those of ops::BatchView.
#ifndef PAGEMILL_CC_BINDINGS_BATCH_ARRAYS_H_
#define PAGEMILL_CC_BINDINGS_BATCH_ARRAYS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "cc/ops/batch_view.h"

namespace pagemill::bindings {

using Int32Vector =
    nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Int32Matrix =
    nanobind::ndarray<const int32_t, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

// Read-only views of the batch's arrays by name, and `block_size`. They are valid as long as the
// batch: for one step.
nanobind::dict BatchToArrays(const ops::BatchView& batch);

// Arrays of a batch that Python made.
struct BatchArrays {
  Int32Vector token_ids, positions, slot_mapping, query_start, seq_lens;
  Int32Matrix block_table;
  Int32Vector logits_rows;

  // Checks lengths, order and ranges, so that no kernel reads beyond an array or the cache of
  // `num_blocks` blocks. Throws StatusException (kInvalidArgument).
  ops::BatchView ToBatchView(int32_t block_size, int32_t num_blocks) const;
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_BATCH_ARRAYS_H_
