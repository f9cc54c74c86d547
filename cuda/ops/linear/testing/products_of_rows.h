// File: cuda/ops/linear/testing/products_of_rows.h
// Products in bf16 of one random x with parts of a matrix, which lie behind each other in memory, in
// a call and one by one. Test code only.
//
//   ProductsOfRows products(weights.view(), /*heights=*/{40, 8, 24}, /*rows=*/33, DType::kBF16,
//                           /*has_bias=*/true);
//   EXPECT_EQ(products.Run(kernel), products.RunEach(kernel));
#ifndef PAGEMILL_CUDA_OPS_LINEAR_TESTING_PRODUCTS_OF_ROWS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_TESTING_PRODUCTS_OF_ROWS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <span>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/tensor/quantized.h"
#include "cuda/ops/linear/tensor_cores.h"

namespace pagemill::gpu {

// The products of a call, whose matrices all have an input for a bias.
inline std::vector<Product> ProductsOf(const ops::OpCall& call) {
  std::vector<Product> products;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& bias = call.inputs[2 + 2 * i];
    products.push_back({call.inputs[1 + 2 * i],
                        bias.rank == 0 ? nullptr : bias.Data<const float>(), call.outputs[i]});
  }
  return products;
}

class ProductsOfRows {
 public:
  // `heights` are rows of the parts of `weights`, whose blocks of scales are of one part each.
  ProductsOfRows(const TensorView& weights, std::span<const int64_t> heights, int64_t rows,
                 DType y_type, bool has_bias)
      : x_(DType::kBF16, {rows, 2, weights.shape[1] / 2}), weights_(weights) {
    ops::conformance::Random random(7);
    x_.FillUniform(random, -2, 2);
    inputs_.push_back(x_.view());
    int64_t first = 0;
    for (const int64_t height : heights) {
      biases_.emplace_back(DType::kF32, std::initializer_list<int64_t>{height});
      biases_.back().FillUniform(random, -1, 1);
      results_.emplace_back(y_type, std::initializer_list<int64_t>{rows, height});
      inputs_.push_back(PartOfWeights(first, height));
      inputs_.push_back(has_bias ? biases_.back().view() : TensorView{});
      outputs_.push_back(results_.back().view());
      first += height;
    }
    inputs_.push_back(weights_);  // no kernel reads it, but parts of a copy stay together
  }
  ProductsOfRows(const TensorView& weights, std::initializer_list<int64_t> heights, int64_t rows,
                 DType y_type, bool has_bias)
      : ProductsOfRows(weights, std::vector<int64_t>(heights), rows, y_type, has_bias) {}

  std::vector<std::vector<float>> Run(const ops::Kernel& kernel) {
    return Run(kernel, inputs_, outputs_);
  }
  std::vector<std::vector<float>> RunEach(const ops::Kernel& kernel) {
    std::vector<std::vector<float>> all;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const TensorView inputs[] = {x_.view(), inputs_[1 + 2 * i], inputs_[2 + 2 * i], weights_};
      all.push_back(Run(kernel, inputs, std::span(outputs_).subspan(i, 1))[i]);
    }
    return all;
  }

 private:
  TensorView PartOfWeights(int64_t first, int64_t height) {
    const auto rows_of = [](TensorView view, int64_t from, int64_t count) {
      view.data = static_cast<std::byte*>(view.data) + from * view.row_stride_bytes;
      view.shape[0] = count;
      return view;
    };
    TensorView part = rows_of(weights_, first, height);
    if (weights_.parts == nullptr) return part;
    QuantizedParts parts = *weights_.parts;
    const int64_t block = parts.format.block_rows;
    parts.values = rows_of(parts.values, first, height);
    parts.scales = rows_of(parts.scales, first / block, (height + block - 1) / block);
    part.parts = &parts_.emplace_back(parts);
    return part;
  }

  std::vector<std::vector<float>> Run(const ops::Kernel& kernel,
                                      std::span<const TensorView> inputs,
                                      std::span<const TensorView> outputs) {
    device::ThreadPool pool({.num_threads = 1});
    for (ops::conformance::TestTensor& result : results_) result.Poison();
    ops::conformance::RunKernel(
        kernel, {.inputs = inputs, .outputs = outputs, .attributes = &attributes_}, pool);
    std::vector<std::vector<float>> all;
    for (const ops::conformance::TestTensor& result : results_) {
      EXPECT_TRUE(result.GuardsIntact());
      all.push_back(result.ToFloat());
    }
    return all;
  }

  const ops::Attributes attributes_;
  ops::conformance::TestTensor x_;
  const TensorView weights_;
  std::deque<ops::conformance::TestTensor> biases_, results_;
  std::deque<QuantizedParts> parts_;
  std::vector<TensorView> inputs_, outputs_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_TESTING_PRODUCTS_OF_ROWS_H_
