#include "cc/program/device/step_image.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace pagemill::program {
namespace {

constexpr int64_t kAlignment = 64;  // bytes
constexpr int64_t kElementBytes = sizeof(int32_t);
constexpr int32_t kNoSlot = -1;  // of an adapter

ops::StepArrays NumbersOf(const StepSizes& sizes) {
  ops::StepArrays step;
  for (const ops::DimInfo& info : ops::kDims) {
    step.*info.size = static_cast<int32_t>(sizes.*info.bound);
  }
  return step;
}

const int32_t* ArrayOf(const ops::StepBatch& batch, const ops::ArrayInfo<ops::StepArrays>& info,
                       size_t) {
  return batch.*info.data;
}
const int32_t* ArrayOf(const ops::StepBatch& batch, const ops::ArrayInfo<ops::KvArrays>& info,
                       size_t table) {
  return batch.kv[table].*info.data;
}

// Fills the elements from `begin` of an array; counts go to `last` at most.
void Pad(ops::Padding padding, int32_t last, int32_t* array, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    switch (padding) {
      case ops::Padding::kZero:
        array[i] = 0;
        break;
      case ops::Padding::kOne:
        array[i] = 1;
        break;
      case ops::Padding::kCount:
        array[i] = i == 0 ? 0 : std::min(array[i - 1] + 1, last);
        break;
    }
  }
}

}  // namespace

StepImage::StepImage(const Program& program, const KvLayout& layout, int64_t max_blocks)
    : max_blocks_(max_blocks) {
  for (size_t a = 0; a < declared_.size(); ++a) {
    declared_[a] = program.Find(ops::kStepArrays[a].name).has_value();
  }
  for (const KvLayout::Table& table : layout.tables) {
    kv_.push_back({.block_size = table.block_size,
                   .recent_states = table.recent_states,
                   .block_table_stride = max_blocks});
  }
}

// Calls body(info, table, rows, columns, offset) for each array; `table` is 0 for arrays that all
// layers share. Returns the total bytes.
template <typename Body>
int64_t StepImage::ForEachArray(const StepSizes& sizes, const Body& body) const {
  const ops::StepArrays step = NumbersOf(sizes);
  int64_t offset = 0;
  const auto visit = [&](const auto& info, size_t table) {
    const int64_t rows = ops::NumRows(info, step), columns = ops::NumColumns(info, max_blocks_);
    body(info, table, rows, columns, offset);
    offset += (rows * columns * kElementBytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  for (size_t a = 0; a < std::size(ops::kStepArrays); ++a) {
    const auto& info = ops::kStepArrays[a];
    if (!info.if_declared || declared_[a]) visit(info, 0);
  }
  for (size_t t = 0; t < kv_.size(); ++t) {
    for (const auto& info : ops::kKvArrays) visit(info, t);
  }
  return offset;
}

int64_t StepImage::Bytes(const StepSizes& sizes) const {
  return ForEachArray(sizes, [](const auto&, size_t, int64_t, int64_t, int64_t) {});
}

void StepImage::Write(const ops::StepBatch& batch, const StepSizes& sizes, Staging* to) {
  if (to->sizes != sizes) {
    to->sizes = sizes;
    to->used.assign(kv_.size() * static_cast<size_t>(sizes.requests), max_blocks_);
  }
  ForEachArray(sizes, [&](const auto& info, size_t table, int64_t padded_rows, int64_t columns,
                          int64_t offset) {
    int32_t* const array = reinterpret_cast<int32_t*>(to->data + offset);
    if (info.per_block) {
      const auto num_rows = static_cast<size_t>(padded_rows);
      WriteTable(batch, table, std::span(to->used).subspan(table * num_rows, num_rows), array);
      return;
    }
    const int64_t rows = ops::NumRows(info, batch);
    std::copy_n(ArrayOf(batch, info, table), rows * columns, array);
    // Indices of tokens end at the last one, boundaries of requests behind it.
    const auto last = static_cast<int32_t>(sizes.tokens - 1 + info.extra);
    Pad(info.padding, last, array, rows * columns, padded_rows * columns);
    // 0 would be a slot, whose adapter would be applied to padding.
    if (info.name == "adapter_slots") std::fill(array + rows, array + padded_rows, kNoSlot);
  });
  const int64_t first = batch.num_tokens + (sizes.requests - batch.num_requests) - 1;
  if (first < sizes.tokens - 1) GrowLastRequest(sizes, first, to->data);
}

// Padding has rows of zeros.
void StepImage::WriteTable(const ops::StepBatch& batch, size_t table, std::span<int64_t> used,
                           int32_t* to) const {
  const ops::KvArrays& kv = batch.kv[table];
  const int64_t most = std::min(kv.block_table_stride, max_blocks_);
  const auto num_requests = static_cast<size_t>(batch.num_requests);
  for (size_t r = 0; r < used.size(); ++r, to += max_blocks_) {
    int64_t count = 0;
    if (r < num_requests) {
      const int64_t blocks = (int64_t{batch.seq_lens[r]} + kv.block_size - 1) / kv.block_size;
      count = std::min(most, blocks + kv.recent_states);
      std::copy_n(kv.block_table + static_cast<int64_t>(r) * kv.block_table_stride, count, to);
    }
    if (count < used[r]) std::fill(to + count, to + used[r], 0);
    used[r] = count;
  }
}

// Gives the last request the tokens from `first`, at consecutive positions of the null page, so
// that it reads nothing that it has not written.
void StepImage::GrowLastRequest(const StepSizes& sizes, int64_t first, std::byte* image) {
  const auto writable = [](const int32_t* array) { return const_cast<int32_t*>(array); };
  const ops::StepBatch step = View(sizes, image);
  writable(step.query_start)[sizes.requests] = static_cast<int32_t>(sizes.tokens);
  writable(step.seq_lens)[sizes.requests - 1] = static_cast<int32_t>(sizes.tokens - first);
  for (const ops::KvArrays& kv : step.kv) {
    for (int64_t t = first; t < sizes.tokens; ++t) {
      writable(kv.slot_mapping)[t] = static_cast<int32_t>((t - first) % kv.block_size);
    }
  }
}

ops::StepBatch StepImage::View(const StepSizes& sizes, const std::byte* base) {
  ops::StepBatch view;
  static_cast<ops::StepArrays&>(view) = NumbersOf(sizes);
  const auto set = [&](const auto& info, size_t table, const int32_t* array) {
    if constexpr (std::is_same_v<decltype(info), const ops::ArrayInfo<ops::KvArrays>&>) {
      kv_[table].*info.data = array;
    } else {
      view.*info.data = array;
    }
  };
  ForEachArray(sizes, [&](const auto& info, size_t table, int64_t, int64_t, int64_t offset) {
    set(info, table, reinterpret_cast<const int32_t*>(base + offset));
  });
  view.kv = kv_;
  return view;
}

}  // namespace pagemill::program
