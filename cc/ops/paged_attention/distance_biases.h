// File: cc/ops/paged_attention/distance_biases.h
// What is added to scores by the distance from a query to a key, as plain data for the kernels of
// `attention` and `paged_attention`. Files compiled for wide instructions include it.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_DISTANCE_BIASES_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_DISTANCE_BIASES_H_

#include <cstdint>

namespace pagemill::ops {

// Biases of the distances from -reach to reach, for each head, and perhaps for each row of the
// step; farther keys have those of the reach.
struct BiasTable {
  const float* data = nullptr;  // null: none
  int32_t reach = 0;
  int64_t row_stride = 0;  // elements from one row to the next; 0: the same for all

  int32_t size() const { return 2 * reach + 1; }  // elements of a head
  const float* Of(int64_t row, int64_t head) const {
    return data + row * row_stride + head * size();
  }
};

struct DistanceBiases {
  BiasTable rows;            // by the distance of positions, or of rows of the grid
  BiasTable keys;  // likewise of positions, but the key's row of the step, not the query's
  BiasTable columns;         // of a grid
  int32_t grid_columns = 0;  // positions in a row of the grid; 0: there is none

  bool AreThere() const { return rows.data != nullptr || keys.data != nullptr; }
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_DISTANCE_BIASES_H_
