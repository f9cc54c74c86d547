#include "cc/ops/paged_attention/attention_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/int4_row.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops::conformance {
namespace {

enum Role : uint64_t { kQuery = 1, kKey = 2, kValue = 3 };

// Nearest, ties to even.
float RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

void StoreElement(DType type, std::byte* page, int64_t index, float value) {
  if (type == DType::kI8) {
    reinterpret_cast<int8_t*>(page)[index] = static_cast<int8_t>(std::lround(value));
  } else if (type == DType::kF8E4M3) {
    reinterpret_cast<uint8_t*>(page)[index] = FloatToF8E4M3(value);
  } else if (type == DType::kF32) {
    reinterpret_cast<float*>(page)[index] = value;
  } else {  // truncated: any bf16 number will do
    reinterpret_cast<uint16_t*>(page)[index] =
        static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  }
}

TestTensorOptions RowsOf(DType act, const TestTensorOptions& of_f32) {
  return act == DType::kF32 ? of_f32 : TestTensorOptions{};
}

}  // namespace

AttentionCase::AttentionCase(const AttentionOptions& options, std::vector<PagedRequest> requests,
                             std::vector<int32_t> ids)
    : options_(options),
      batch_(options.block_size, std::move(requests), Random(5)),
      q_(options.act, {batch().num_tokens, options.q_heads, options.head_dim},
         RowsOf(options.act, {.misalign_bytes = 4, .row_padding_bytes = 4})),
      cache_(options.dtype, {batch_.num_blocks(),
                             KvBlockElements(options.dtype, {options.kv_heads, options.head_dim},
                                             options.block_size)}),
      y_(options.act, {batch().num_tokens, options.q_heads, options.head_dim},
         RowsOf(options.act, {.misalign_bytes = 8, .row_padding_bytes = 12})) {
  if (HasKvScales(options.dtype)) {  // all scales are NaN
    std::memset(cache_.view().data, 0xff,
                cache_.view().shape[0] * RowBytes(options.dtype, cache_.view().shape[1]));
  }
  batch_.ShareBlocks(options.common_blocks);
  const int64_t row = options.q_heads * options.head_dim;
  std::vector<float> queries;
  for (int64_t r = 0; r < batch().num_requests; ++r) {
    const int32_t id = ids.empty() ? static_cast<int32_t>(r) : ids[r];
    const PagedRequest& request = batch_.requests()[r];
    for (int32_t i = 0; i < request.tokens; ++i) {
      std::vector<float> q = TokenVector(kQuery, id, request.context + i, row);
      if (options.round_queries) std::transform(q.begin(), q.end(), q.begin(), RoundToBf16);
      if (options.zero_queries) std::fill(q.begin(), q.end(), 0.0f);
      queries.insert(queries.end(), q.begin(), q.end());
    }
    if (request.tokens > 0) StoreContext(r, id);
  }
  q_.Set(queries);
  attributes_.Set("scale", 1 / std::sqrt(static_cast<double>(options.head_dim)));
  attributes_.Set("window", options.window);
  attributes_.Set("chunked", options.chunked ? 1 : 0);
  attributes_.Set("causal", options.causal ? 1 : 0);
  attributes_.Set("encoder_ends", options.encoder_keys ? 1 : options.decoder_keys ? 2 : 0);
  if (options.encoder_end > 0) {
    std::vector<int32_t> ends;
    for (int64_t r = 0; r < batch().num_requests; ++r) {
      ends.push_back(EncoderEnd(ids.empty() ? static_cast<int32_t>(r) : ids[r]));
    }
    batch_.SetEncoderEnds(ends);
  }
  if (options.item_end > 0) batch_.SetItems(options.item_begin, options.item_end);
  attributes_.Set("item_ends", options.item_end > 0 ? 1 : 0);
  attributes_.Set("soft_cap", options.soft_cap);
  attributes_.Set("grows_from", options.grows_from);
  attributes_.Set("k_scale", options.kv_scales.k);
  attributes_.Set("v_scale", options.kv_scales.v);
  attributes_.Set(kKeysInRows, options.keys_in_rows ? 1 : 0);
  inputs_[0] = q_.view();
  inputs_[1] = cache_.view();
  for (int64_t head = 0; head < options.q_heads; ++head) {
    sinks_.push_back(static_cast<float>(head * 5 % 13) - 4);
    slopes_.push_back(std::ldexp(1.0f, static_cast<int>(-1 - head)));
  }
  if (options.sinks) inputs_[2] = TensorView::Dense(sinks_.data(), DType::kF32, {options.q_heads});
  if (options.slopes) {
    inputs_[3] = TensorView::Dense(slopes_.data(), DType::kF32, {options.q_heads});
  }
  if (options.bias_reach >= 0) {
    const int64_t distances = 2 * options.bias_reach + 1;
    Random random(7);
    for (int64_t i = 0; i < options.q_heads * distances; ++i) {
      biases_.push_back(random.Uniform(-2, 2));
    }
    inputs_[4] = TensorView::Dense(biases_.data(), DType::kF32, {options.q_heads, distances});
  }
  outputs_[0] = y_.view();
  call_ = {
      .inputs = inputs_, .outputs = outputs_, .attributes = &attributes_, .batch = &batch_.view()};
}

void AttentionCase::StoreContext(int64_t request, int32_t id) {
  const PagedRequest& r = batch_.requests()[request];
  const int32_t last = r.context + r.tokens;
  const int32_t encoder_end = EncoderEnd(id);
  const int32_t end = options_.encoder_keys ? std::min(last, encoder_end) : last;
  const int32_t begin = options_.chunked      ? r.context / options_.window * options_.window
                        : options_.window > 0 ? std::max(0, r.context + 1 - options_.window)
                        : options_.decoder_keys && r.context >= encoder_end ? encoder_end
                                                                            : 0;
  const int64_t size = options_.kv_heads * options_.head_dim;
  for (int32_t position = begin; position < end; ++position) {
    const int32_t owner = position < options_.common_blocks * options_.block_size ? -1 : id;
    const std::vector<float> k = TokenVector(kKey, owner, position, size);
    std::vector<float> v = TokenVector(kValue, owner, position, size);
    for (float& value : v) value *= options_.value_factor;
    StoreToken(batch_.Slot(request, position), k.data(), v.data());
  }
  const int64_t rows = options_.kv_heads * (end - begin);
  visible_bytes_ +=
      RowBytes(options_.dtype, rows * KvTokenElements(options_.dtype, options_.head_dim));
  const int32_t capacity = static_cast<int32_t>(batch().block_table_stride);
  for (int32_t block = 0; block < capacity; ++block) {
    const bool seen =
        block * options_.block_size < end && (block + 1) * options_.block_size > begin;
    if (!seen) batch_.ForgetBlock(request, block);
  }
}

void AttentionCase::StoreToken(int64_t slot, const float* k, const float* v) {
  const int64_t block_size = options_.block_size, dims = options_.head_dim;
  const int64_t token = slot % block_size;
  const KvTypes types = KvTypesOf(options_.dtype);
  const KeyStrides key = KeyStridesOf(options_.keys_in_rows, dims, block_size);
  const int64_t row_bytes = KvRowBytes(types.value, dims);
  const auto key_at = [&](int64_t d) { return d * key.element + token * key.token; };
  const auto value_at = [&](int64_t d) { return token * dims + d; };
  const auto key_byte_at = [&](int64_t byte) { return Int4KeyOffset(byte, token, block_size); };
  const auto value_byte_at = [&](int64_t byte) { return Int4ValueOffset(byte, token, row_bytes); };
  std::byte* const block = cache_.view().Row<std::byte>(slot / block_size);
  std::byte* const values = block + KvValuesOffsetBytes(options_.dtype, Heads(), block_size);
  for (int64_t h = 0; h < options_.kv_heads; ++h) {
    const int64_t k_row = h * block_size + token;
    StoreRow({block, k_row, types.key, options_.kv_scales.k}, k + h * dims,
             block + h * block_size * KvRowBytes(types.key, dims), key_at, key_byte_at);
    const int64_t v_row = options_.kv_heads * block_size + k_row;
    StoreRow({block, v_row, types.value, options_.kv_scales.v}, v + h * dims,
             values + h * block_size * row_bytes, value_at, value_byte_at);
  }
}

template <typename At, typename ByteAt>
void AttentionCase::StoreRow(const StoredRow& row, const float* x, std::byte* page, const At& at,
                             const ByteAt& byte_at) {
  const int dims = static_cast<int>(options_.head_dim);
  if (row.type != DType::kU4) {
    const float unit = StoreScale(row, x) * row.kv_scale;
    for (int d = 0; d < dims; ++d) StoreElement(row.type, page, at(d), x[d] / unit);
    return;
  }
  std::vector<float> rotated(x, x + dims);
  RotateRow(rotated.data(), dims, 1.0f / static_cast<float>(Int4Rotation(dims)));
  const float scale = StoreScale(row, rotated.data());
  for (int d = 0; d < dims; ++d) {
    const auto code = static_cast<int>(std::lround((rotated[d] / scale + 15) / 2));
    auto& pair = reinterpret_cast<uint8_t*>(page)[byte_at(Int4Byte(d))];
    pair = static_cast<uint8_t>(IsInt4High(d) ? (pair & 0x0f) | code << 4 : (pair & 0xf0) | code);
  }
}

float AttentionCase::StoreScale(const StoredRow& row, const float* x) {
  if (!HasKvScales(options_.dtype)) return 1;
  const float largest = row.type == DType::kU4 ? kLargestInt4 : 127;
  float scale = 1e-20f;
  for (int64_t d = 0; d < options_.head_dim; ++d) {
    scale = std::max(scale, std::fabs(x[d]) / largest);
  }
  std::memcpy(row.block + KvScalesOffsetBytes(options_.dtype, Heads(), options_.block_size) +
                  row.number * static_cast<int64_t>(sizeof(float)),
              &scale, sizeof(scale));
  return scale;
}

std::vector<float> AttentionCase::Run(const Kernel& kernel, device::ThreadPool& pool) {
  y_.Poison();
  RunKernel(kernel, call_, pool);
  EXPECT_TRUE(y_.GuardsIntact() && q_.GuardsIntact() && cache_.GuardsIntact()) << kernel.name;
  return y_.ToFloat();
}

}  // namespace pagemill::ops::conformance
