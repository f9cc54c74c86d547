#include "cc/ops/latent_attention/latent_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "cc/tensor/float16.h"

namespace pagemill::ops::conformance {
namespace {

enum Role : uint64_t { kQuery = 1, kRope = 2, kLatent = 3 };

void Append(std::vector<float>& to, const std::vector<float>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

// Appends at most `choices` of the first `visible` rows: the last, and others at a stride.
void AppendChoice(std::vector<int32_t>* chosen, int32_t visible, int32_t choices) {
  if (choices == 0) return;
  const int32_t count = std::min(choices, visible), stride = visible / std::max(count, 1);
  for (int32_t i = 0; i < count; ++i) chosen->push_back(visible - 1 - (count - 1 - i) * stride);
  chosen->insert(chosen->end(), static_cast<size_t>(choices - count), -1);
}

}  // namespace

LatentCase::LatentCase(const LatentOptions& options, std::vector<PagedRequest> requests,
                       std::vector<int32_t> ids)
    : options_(options),
      batch_(options.block_size, std::move(requests), Random(5)),
      q_(options.act, {batch_.view().num_tokens, options.heads, options.size},
         {.misalign_bytes = 4, .row_padding_bytes = 4}),
      rope_(options.act, {batch_.view().num_tokens, options.heads, options.rope_size},
            {.misalign_bytes = 8, .row_padding_bytes = 8}),
      cache_(options.dtype,
             {batch_.num_blocks(), options.block_size / options.tokens_of_row, CacheWidth()},
             {.row_padding_bytes = 64}),
      chosen_(DType::kI32, {batch_.view().num_tokens, std::max(options.choices, 1)},
              {.misalign_bytes = 4, .row_padding_bytes = 4}),
      y_(options.act, {batch_.view().num_tokens, options.heads, options.size},
         {.misalign_bytes = 8, .row_padding_bytes = 12}),
      sums_(DType::kF32, {batch_.view().num_tokens, options.heads},
            {.misalign_bytes = 4, .row_padding_bytes = 8}) {
  std::vector<float> q, rope;
  std::vector<int32_t> chosen;
  for (int64_t r = 0; r < batch_.view().num_requests; ++r) {
    const int32_t id = ids.empty() ? static_cast<int32_t>(r) : ids[static_cast<size_t>(r)];
    const PagedRequest& request = batch_.requests()[static_cast<size_t>(r)];
    for (int32_t i = 0; i < request.tokens; ++i) {
      const int32_t position = request.context + i;
      Append(q, TokenVector(kQuery, id, position, options.heads * options.size));
      Append(rope, TokenVector(kRope, id, position, options.heads * options.rope_size));
      AppendChoice(&chosen, (position + 1) / options.tokens_of_row, options.choices);
    }
    if (request.tokens > 0) StoreContext(r, id);
  }
  q_.Set(q);
  if (options.rope_size > 0) rope_.Set(rope);
  attributes_.Set("scale", 1 / std::sqrt(static_cast<double>(options.size + options.rope_size)));
  inputs_[0] = q_.view();
  if (options.rope_size > 0) inputs_[1] = rope_.view();
  if (options.sums) attributes_.Set("sums", 1);
  if (options.bf16_elements > 0) {
    attributes_.Set("bf16_elements", static_cast<double>(options.bf16_elements));
  }
  if (options.window > 0) attributes_.Set("window", options.window);
  inputs_[2] = cache_.view();
  if (options.choices > 0) {
    chosen_.SetInt(chosen);
    inputs_[3] = chosen_.view();
  }
  outputs_[0] = y_.view();
  outputs_[1] = sums_.view();
  call_ = {.inputs = inputs_,
           .outputs = std::span(outputs_).first(options.sums ? 2 : 1),
           .attributes = &attributes_,
           .batch = &batch_.view()};
}

void LatentCase::StoreContext(int64_t request, int32_t id) {
  const PagedRequest& r = batch_.requests()[static_cast<size_t>(request)];
  const int32_t end = r.context + r.tokens;
  const int64_t width = options_.size + options_.rope_size;
  const int64_t row_bytes = RowBytes(options_.dtype, CacheWidth());
  const int32_t every = options_.tokens_of_row, block_rows = options_.block_size / every;
  const int32_t begin = options_.window > 0 ? std::max(0, r.context + 1 - options_.window) : 0;
  for (int32_t row = begin; row < end / every; ++row) {
    const std::vector<float> values = TokenVector(kLatent, id, row, width);
    const int64_t index = batch_.Slot(request, row * every) / every, block = index / block_rows;
    StoreRow(values, cache_.view().Row<std::byte>(block) + index % block_rows * row_bytes);
  }
  visible_bytes_ += (end / every - begin) * row_bytes;
  for (int32_t block = 0; block < batch_.view().block_table_stride; ++block) {
    const int32_t first = block * options_.block_size;
    if (first >= end || first + options_.block_size <= begin) batch_.ForgetBlock(request, block);
  }
}

LatentF8Row LatentCase::F8Row() const {
  const int64_t width = options_.size + options_.rope_size;
  return {.codes = width - options_.bf16_elements, .rest = options_.bf16_elements};
}

int64_t LatentCase::CacheWidth() const {
  return options_.dtype == DType::kF8E4M3 ? F8Row().bytes() : options_.size + options_.rope_size;
}

void LatentCase::StoreRow(const std::vector<float>& values, std::byte* to) const {
  if (options_.dtype == DType::kF32) {
    std::memcpy(to, values.data(), values.size() * sizeof(float));
    return;
  }
  const bool is_f8 = options_.dtype == DType::kF8E4M3;
  const LatentF8Row row = is_f8 ? F8Row() : LatentF8Row{.codes = 0, .rest = CacheWidth()};
  for (int64_t begin = 0; begin < row.codes; begin += kLatentGroup) {
    const auto group = std::span(values).subspan(
        static_cast<size_t>(begin), static_cast<size_t>(std::min(kLatentGroup, row.codes - begin)));
    uint32_t largest = 0;
    for (const float value : group) {
      largest = std::max(largest, std::bit_cast<uint32_t>(std::abs(value)));
    }
    const uint32_t scale = LatentScaleBits(largest);
    std::memcpy(to + row.scales_offset() + begin / kLatentGroup * 4, &scale, sizeof(scale));
    std::ranges::transform(group, to + begin, [&](float value) {
      return static_cast<std::byte>(LatentCode(value, scale));
    });
  }
  auto* const rest = reinterpret_cast<uint16_t*>(to + row.rest_offset());
  for (int64_t i = 0; i < row.rest; ++i) {
    rest[i] = FloatToBf16(values[static_cast<size_t>(row.codes + i)]);
  }
}

std::vector<float> LatentCase::Run(const Kernel& kernel, device::ThreadPool& pool) {
  y_.Poison();
  sums_.Poison();
  RunKernel(kernel, call_, pool);
  EXPECT_TRUE(y_.GuardsIntact() && sums_.GuardsIntact() && q_.GuardsIntact() &&
              rope_.GuardsIntact() && cache_.GuardsIntact())
      << kernel.name;
  std::vector<float> results = y_.ToFloat();
  if (options_.sums) Append(results, sums_.ToFloat());
  return results;
}

}  // namespace pagemill::ops::conformance
