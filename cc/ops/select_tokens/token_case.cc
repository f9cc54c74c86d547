#include "cc/ops/select_tokens/token_case.h"

#include <cmath>
#include <utility>

#include "cc/tensor/float16.h"

namespace pagemill::ops::conformance {
namespace {

enum Role : uint64_t { kQuery = 1, kRope = 2, kWeight = 3, kKey = 4 };

std::vector<float> Integers(Role role, int32_t id, int32_t position, int64_t size) {
  std::vector<float> values = TokenVector(role, id, position, size);
  for (float& value : values) value = std::round(value);
  return values;
}

void Append(std::vector<float>& to, const std::vector<float>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

}  // namespace

TokenCase::TokenCase(const TokenOptions& options, std::vector<PagedRequest> requests,
                     std::vector<int32_t> ids)
    : options_(options),
      batch_(options.block_size, std::move(requests), Random(5)),
      q_(DType::kF32, {batch_.view().num_tokens, options.heads, options.size},
         {.misalign_bytes = 4, .row_padding_bytes = 4}),
      rope_(DType::kF32, {batch_.view().num_tokens, options.heads, options.rope_size},
            {.misalign_bytes = 8, .row_padding_bytes = 8}),
      weights_(DType::kF32, {batch_.view().num_tokens, options.heads},
               {.misalign_bytes = 4, .row_padding_bytes = 8}),
      cache_(options.dtype,
             {batch_.num_blocks(), options.block_size / options.tokens_of_row,
              options.size + options.rope_size},
             {.row_padding_bytes = 64}),
      chosen_(DType::kI32, {batch_.view().num_tokens, options.choices},
              {.misalign_bytes = 4, .row_padding_bytes = 12}) {
  std::vector<float> q, rope, weights;
  for (int64_t r = 0; r < batch_.view().num_requests; ++r) {
    const int32_t id = ids.empty() ? static_cast<int32_t>(r) : ids[static_cast<size_t>(r)];
    const PagedRequest& request = batch_.requests()[static_cast<size_t>(r)];
    for (int32_t i = 0; i < request.tokens; ++i) {
      const int32_t position = request.context + i;
      Append(q, Integers(kQuery, id, position, options.heads * options.size));
      Append(rope, Integers(kRope, id, position, options.heads * options.rope_size));
      Append(weights, Integers(kWeight, id, position, options.heads));
    }
    if (request.tokens > 0) StoreContext(r, id);
  }
  q_.Set(q);
  if (options.rope_size > 0) rope_.Set(rope);
  weights_.Set(weights);
  attributes_.Set("choices", static_cast<double>(options.choices));
  inputs_[0] = q_.view();
  if (options.rope_size > 0) inputs_[1] = rope_.view();
  inputs_[2] = weights_.view();
  inputs_[3] = cache_.view();
  outputs_[0] = chosen_.view();
  call_ = {
      .inputs = inputs_, .outputs = outputs_, .attributes = &attributes_, .batch = &batch_.view()};
}

void TokenCase::StoreContext(int64_t request, int32_t id) {
  const PagedRequest& r = batch_.requests()[static_cast<size_t>(request)];
  const int32_t end = r.context + r.tokens;
  const int64_t width = options_.size + options_.rope_size;
  const int32_t every = options_.tokens_of_row, block_rows = options_.block_size / every;
  for (int32_t row = 0; row < end / every; ++row) {
    const std::vector<float> values = Integers(kKey, id, row, width);
    const int64_t index = batch_.Slot(request, row * every) / every, block = index / block_rows;
    const int64_t first = index % block_rows * width;
    for (int64_t i = 0; i < width; ++i) {
      const float value = values[static_cast<size_t>(i)];
      if (options_.dtype == DType::kF32) {
        cache_.view().Row<float>(block)[first + i] = value;
      } else {
        cache_.view().Row<uint16_t>(block)[first + i] = FloatToBf16(value);
      }
    }
  }
  for (int32_t block = 0; block < batch_.view().block_table_stride; ++block) {
    if (block * options_.block_size >= end) batch_.ForgetBlock(request, block);
  }
}

std::vector<float> TokenCase::Run(const Kernel& kernel, device::ThreadPool& pool) {
  chosen_.Poison();
  RunKernel(kernel, call_, pool);
  EXPECT_TRUE(chosen_.GuardsIntact() && q_.GuardsIntact() && rope_.GuardsIntact() &&
              weights_.GuardsIntact() && cache_.GuardsIntact())
      << kernel.name;
  return chosen_.ToFloat();
}

}  // namespace pagemill::ops::conformance
