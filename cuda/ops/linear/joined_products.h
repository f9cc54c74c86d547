// File: cuda/ops/linear/joined_products.h
// Products of one x that a library multiplies as one: alone, small matrices leave most of a GPU's
// multiprocessors without work. Their weights lie behind each other in memory; their results get a
// matrix in the workspace and go where they belong from there, with their bias.
//
//   for (JoinedProducts& joined : JoinedProducts::Of(rows, products, DType::kBF16)) {
//     if (joined.AreJoined() && Multiply(joined.ProductIn(results))) {
//       joined.Split(results, stream);
//     } else {
//       for (const Product& product : joined.products()) Multiply(product);
//     }
//   }
#ifndef PAGEMILL_CUDA_OPS_LINEAR_JOINED_PRODUCTS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_JOINED_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/device/stream.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/ops/linear/tensor_cores.h"

namespace pagemill::gpu {

// Of x, up to which products are joined: with more, small matrices have blocks enough, and results
// are more than weights.
inline constexpr int64_t kMostJoinedRows = 256;

// Some products that follow each other in a call, joined or one alone. Their views are kept, so the
// products outlive it.
class JoinedProducts {
 public:
  // All of them, in their order, for `rows` of x. Those whose weights are elements of `joined` may be
  // joined.
  static std::vector<JoinedProducts> Of(int64_t rows, std::span<const Product> products,
                                        DType joined);
  // What results of calls with up to `rows` rows take in the workspace, if those of the products
  // are `ys`.
  static int64_t Bytes(int64_t rows, std::span<const TensorView> ys);

  std::span<const Product> products() const { return products_; }
  bool AreJoined() const { return products_.size() > 1; }

  // As one, without a bias, with its results in the workspace. `results` is at a multiple of 16
  // bytes. Valid while this exists.
  Product ProductIn(std::byte* results);
  // Enqueues that the results go where they belong.
  void Split(const std::byte* results, device::Stream& stream) const;

 private:
  JoinedProducts(int64_t rows, std::span<const Product> products)
      : rows_(rows), products_(products) {}

  TensorView ResultsAt(std::byte* results) const;

  int64_t rows_;
  std::span<const Product> products_;
  QuantizedParts parts_;  // of the joined weights, if they have any
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_JOINED_PRODUCTS_H_
