#include "cc/bindings/batch_arrays.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "cc/bindings/status_error.h"
#include "cc/program/operand_views.h"
#include "cc/tensor/to_float.h"

namespace pagemill::bindings {

namespace nb = nanobind;

namespace {

// A read-only numpy array over memory of the batch. It has no owner: the batch outlives the call
// that it is passed to.
nb::object View(const int32_t* data, const std::vector<size_t>& shape) {
  static constexpr int32_t kNothing = 0;  // numpy wants an address for an empty array too
  return nb::cast(nb::ndarray<nb::numpy, const int32_t>(data == nullptr ? &kNothing : data,
                                                        shape.size(), shape.data()),
                  nb::rv_policy::reference);
}

// Likewise, of an input, which is dense and f32.
nb::object FloatView(const TensorView& input) {
  static constexpr float kNothing = 0;
  size_t shape[TensorView::kMaxRank];
  std::copy_n(input.shape.begin(), input.rank, shape);
  const float* data = input.data == nullptr ? &kNothing : input.Data<const float>();
  return nb::cast(nb::ndarray<nb::numpy, const float>(data, static_cast<size_t>(input.rank), shape),
                  nb::rv_policy::reference);
}

void Require(bool condition, const std::string& message) {
  if (!condition) ThrowIfError(InvalidArgument(message));
}

void RequireRange(std::string_view name, const int32_t* data, int64_t size, int32_t low,
                  int64_t high) {
  for (int64_t i = 0; i < size; ++i) {
    Require(data[i] >= low && data[i] < high,
            std::string(name) + " must be from " + std::to_string(low) + " to " +
                std::to_string(high - 1) + ", got " + std::to_string(data[i]));
  }
}

nb::object Item(const nb::dict& from, std::string_view name) {
  const nb::str key(name.data(), name.size());
  Require(from.contains(key), "the batch has no " + std::string(name));
  return from[key];
}

template <typename Rows>
nb::dict ToDict(const ops::StepArrays& step, const auto& arrays, const Rows& rows) {
  nb::dict dict;
  for (const auto& info : rows) {
    std::vector<size_t> shape = {static_cast<size_t>(ops::NumRows(info, step))};
    if (info.if_declared && arrays.*info.data == nullptr) continue;
    if (info.columns != 1) shape.push_back(static_cast<size_t>(info.columns));
    if constexpr (std::is_same_v<std::decay_t<decltype(arrays)>, ops::KvArrays>) {
      if (info.per_block) shape.push_back(static_cast<size_t>(arrays.block_table_stride));
    }
    dict[nb::str(info.name.data(), info.name.size())] = View(arrays.*info.data, shape);
  }
  return dict;
}

}  // namespace

nb::dict BatchToArrays(const ops::StepBatch& batch) {
  nb::dict arrays = ToDict(batch, static_cast<const ops::StepArrays&>(batch), ops::kStepArrays);
  nb::list tables;
  for (const ops::KvArrays& kv : batch.kv) {
    nb::dict table = ToDict(batch, kv, ops::kKvArrays);
    for (const auto& info : ops::kKvNumbers) {
      table[nb::str(info.name.data(), info.name.size())] = kv.*info.value;
    }
    tables.append(table);
  }
  arrays["kv"] = tables;
  if (!batch.inputs.empty()) {
    nb::list inputs;
    for (const TensorView& input : batch.inputs) inputs.append(FloatView(input));
    arrays["inputs"] = inputs;
  }
  return arrays;
}

template <typename Arrays>
void BatchArrays::Read(const nb::dict& from, Arrays* to) {
  constexpr bool kIsTable = std::is_same_v<Arrays, ops::KvArrays>;
  const auto read = [&](const auto& info) {
    Array array;
    const std::string name(info.name);
    if (info.if_declared && !from.contains(name.c_str())) return;
    Require(nb::try_cast(Item(from, info.name), array), name + " must be an array of int32");
    Require(array.ndim() == (info.per_block || info.columns != 1 ? 2u : 1u),
            name + " has the wrong number of dimensions");
    Require(info.columns == 1 || static_cast<int64_t>(array.shape(1)) == info.columns,
            name + " must have " + std::to_string(info.columns) + " columns");
    const int64_t rows = ops::NumRows(info, batch_);
    Require(static_cast<int64_t>(array.shape(0)) == rows, name + " must have " +
                                                              std::to_string(rows) + " rows, got " +
                                                              std::to_string(array.shape(0)));
    if constexpr (kIsTable) {
      if (info.per_block) to->block_table_stride = static_cast<int64_t>(array.shape(1));
    }
    to->*info.data = array.data();
    kept_.push_back(std::move(array));
  };
  if constexpr (kIsTable) {
    for (const auto& info : ops::kKvArrays) read(info);
    for (const auto& info : ops::kKvNumbers) {
      to->*info.value = nb::cast<int32_t>(Item(from, info.name));
    }
  } else {
    for (const auto& info : ops::kStepArrays) read(info);
  }
}

void BatchArrays::CheckStep() const {
  const ops::StepBatch& b = batch_;
  RequireRange("logits_rows", b.logits_rows, b.num_logits_rows, 0, b.num_tokens);
  RequireRange("media_rows", b.media_rows, b.num_media_rows, 0, b.num_tokens);
  RequireRange("text_rows", b.text_rows, b.num_text_rows, 0, b.num_tokens);
  RequireRange("seq_lens", b.seq_lens, b.num_requests, 1, int64_t{INT32_MAX} + 1);
  Require(b.query_start[0] == 0 && b.query_start[b.num_requests] == b.num_tokens &&
              std::is_sorted(b.query_start, b.query_start + b.num_requests + 1),
          "query_start must ascend from 0 to the number of tokens");
  for (int32_t r = 0; r < b.num_requests; ++r) {
    Require(b.query_start[r + 1] - b.query_start[r] <= b.seq_lens[r],
            "a request runs more tokens than its seq_lens");
    const int32_t first = b.query_start[r], count = b.query_start[r + 1] - first;
    if (b.item_ends != nullptr) {
      RequireRange("item_ends", b.item_ends + first, count, 0, int64_t{b.seq_lens[r]} + 1);
    }
    if (b.encoder_ends != nullptr) {
      RequireRange("encoder_ends", b.encoder_ends + first, count, 1, int64_t{INT32_MAX} + 1);
    }
  }
}

void BatchArrays::CheckTable(const ops::KvArrays& table, int32_t num_pages) const {
  const ops::StepBatch& b = batch_;
  const int64_t num_slots = int64_t{num_pages} * table.block_size;
  RequireRange("slot_mapping", table.slot_mapping, b.num_tokens, 0, num_slots);
  RequireRange("block_table", table.block_table, b.num_requests * table.block_table_stride, 0,
               num_pages);
  RequireRange("recent_states", &table.recent_states, 1, 0, table.block_table_stride + 1);
  const int64_t most_tokens =
      (table.block_table_stride - table.recent_states) * table.block_size;
  RequireRange("seq_lens", b.seq_lens, b.num_requests, 1, most_tokens + 1);
  RequireRange("num_common_blocks", &table.num_common_blocks, 1, 0, table.block_table_stride + 1);
}

void BatchArrays::ReadInputs(const nb::dict& from, const program::Program& program) {
  for (program::ValueId id : program.TensorInputs()) {
    const program::Value& value = program.value(id);
    const nb::dict inputs = nb::cast<nb::dict>(Item(from, "inputs"));
    nb::ndarray<const float, nb::c_contig, nb::device::cpu> array;
    TensorView view = program::MakeView(value, ops::SizesOf(batch_), nullptr);
    bool fits = nb::try_cast(Item(inputs, value.name), array) &&
                array.ndim() == static_cast<size_t>(view.rank);
    for (size_t d = 0; fits && d < array.ndim(); ++d) {
      fits = static_cast<int64_t>(array.shape(d)) == view.shape[d];
    }
    Require(fits,
            "input " + value.name + " must be float32 of the shape of " + program::ViewText(view));
    input_bytes_.emplace_back(static_cast<size_t>(value.Bytes(ops::SizesOf(batch_))));
    view.data = input_bytes_.back().data();
    if (view.dtype == DType::kF32) {
      std::memcpy(view.data, array.data(), input_bytes_.back().size());
    } else {
      FromFloat(array.data(), view);
    }
    inputs_.push_back(view);
  }
  batch_.inputs = inputs_;
}

BatchArrays::BatchArrays(const nb::dict& arrays, const program::Program& program,
                         const program::KvLayout& layout) {
  const auto rows = [&](const char* name) {
    return static_cast<int32_t>(nb::len(Item(arrays, name)));
  };
  batch_.num_tokens = rows("token_ids");
  batch_.num_requests = rows("seq_lens");
  batch_.num_logits_rows = rows("logits_rows");
  batch_.num_media_rows = rows("media_rows");
  if (arrays.contains("text_rows")) batch_.num_text_rows = rows("text_rows");
  Read(arrays, static_cast<ops::StepArrays*>(&batch_));
  CheckStep();
  const std::vector<int32_t> block_sizes = layout.TableBlockSizes();
  const nb::object kv = Item(arrays, "kv");
  Require(nb::len(kv) == block_sizes.size(),
          "kv must have an entry for each of " + std::to_string(block_sizes.size()) +
              " block tables, got " + std::to_string(nb::len(kv)));
  for (size_t t = 0; t < block_sizes.size(); ++t) {
    ops::KvArrays table;
    Read(nb::cast<nb::dict>(kv[t]), &table);
    Require(table.block_size == block_sizes[t],
            "block table " + std::to_string(t) + " has blocks of " +
                std::to_string(block_sizes[t]) + " tokens, got " +
                std::to_string(table.block_size));
    CheckTable(table, layout.geometry.num_blocks);
    tables_.push_back(table);
  }
  batch_.kv = tables_;
  ReadInputs(arrays, program);
}

}  // namespace pagemill::bindings
