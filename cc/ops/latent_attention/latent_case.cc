#include "cc/ops/latent_attention/latent_case.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "cc/tensor/float16.h"

namespace pagemill::ops::conformance {
namespace {

enum Role : uint64_t { kQuery = 1, kRope = 2, kLatent = 3 };

void Append(std::vector<float>& to, const std::vector<float>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

// Appends at most `choices` of the positions up to `position`: the last, and others at a stride.
void AppendChoice(std::vector<int32_t>* chosen, int32_t position, int32_t choices) {
  if (choices == 0) return;
  const int32_t count = std::min(choices, position + 1), stride = (position + 1) / count;
  for (int32_t i = 0; i < count; ++i) chosen->push_back(position - (count - 1 - i) * stride);
  chosen->insert(chosen->end(), static_cast<size_t>(choices - count), -1);
}

}  // namespace

LatentCase::LatentCase(const LatentOptions& options, std::vector<PagedRequest> requests,
                       std::vector<int32_t> ids)
    : options_(options),
      batch_(options.block_size, std::move(requests), Random(5)),
      q_(DType::kF32, {batch_.view().num_tokens, options.heads, options.size},
         {.misalign_bytes = 4, .row_padding_bytes = 4}),
      rope_(DType::kF32, {batch_.view().num_tokens, options.heads, options.rope_size},
            {.misalign_bytes = 8, .row_padding_bytes = 8}),
      cache_(options.dtype,
             {batch_.num_blocks(), options.block_size, options.size + options.rope_size},
             {.row_padding_bytes = 64}),
      chosen_(DType::kI32, {batch_.view().num_tokens, std::max(options.choices, 1)},
              {.misalign_bytes = 4, .row_padding_bytes = 4}),
      y_(DType::kF32, {batch_.view().num_tokens, options.heads, options.size},
         {.misalign_bytes = 8, .row_padding_bytes = 12}) {
  std::vector<float> q, rope;
  std::vector<int32_t> chosen;
  for (int64_t r = 0; r < batch_.view().num_requests; ++r) {
    const int32_t id = ids.empty() ? static_cast<int32_t>(r) : ids[static_cast<size_t>(r)];
    const PagedRequest& request = batch_.requests()[static_cast<size_t>(r)];
    for (int32_t i = 0; i < request.tokens; ++i) {
      const int32_t position = request.context + i;
      Append(q, TokenVector(kQuery, id, position, options.heads * options.size));
      Append(rope, TokenVector(kRope, id, position, options.heads * options.rope_size));
      AppendChoice(&chosen, position, options.choices);
    }
    if (request.tokens > 0) StoreContext(r, id);
  }
  q_.Set(q);
  rope_.Set(rope);
  attributes_.Set("scale", 1 / std::sqrt(static_cast<double>(options.size + options.rope_size)));
  inputs_[0] = q_.view();
  inputs_[1] = rope_.view();
  inputs_[2] = cache_.view();
  if (options.choices > 0) {
    chosen_.SetInt(chosen);
    inputs_[3] = chosen_.view();
  }
  outputs_[0] = y_.view();
  call_ = {
      .inputs = inputs_, .outputs = outputs_, .attributes = &attributes_, .batch = &batch_.view()};
}

void LatentCase::StoreContext(int64_t request, int32_t id) {
  const PagedRequest& r = batch_.requests()[static_cast<size_t>(request)];
  const int32_t end = r.context + r.tokens;
  const int64_t width = options_.size + options_.rope_size;
  for (int32_t position = 0; position < end; ++position) {
    const std::vector<float> values = TokenVector(kLatent, id, position, width);
    const int64_t slot = batch_.Slot(request, position), block = slot / options_.block_size;
    const int64_t first = slot % options_.block_size * width;
    for (int64_t i = 0; i < width; ++i) {
      const float value = values[static_cast<size_t>(i)];
      if (options_.dtype == DType::kF32) {
        cache_.view().Row<float>(block)[first + i] = value;
      } else {
        cache_.view().Row<uint16_t>(block)[first + i] = FloatToBf16(value);
      }
    }
  }
  visible_bytes_ += end * RowBytes(options_.dtype, width);
  for (int32_t block = 0; block < batch_.view().block_table_stride; ++block) {
    if (block * options_.block_size >= end) batch_.ForgetBlock(request, block);
  }
}

std::vector<float> LatentCase::Run(const Kernel& kernel, device::ThreadPool& pool) {
  y_.Poison();
  RunKernel(kernel, call_, pool);
  EXPECT_TRUE(y_.GuardsIntact() && q_.GuardsIntact() && rope_.GuardsIntact() &&
              cache_.GuardsIntact())
      << kernel.name;
  return y_.ToFloat();
}

}  // namespace pagemill::ops::conformance
