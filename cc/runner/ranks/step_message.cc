#include "cc/runner/ranks/step_message.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

namespace pagemill::runner {
namespace {

// A message: its kind, the numbers of the step (ops::kStepNumbers), which arrays of the step it has
// (a bit each), how many block tables and inputs; for each table its numbers (ops::kKvNumbers) and
// width, for each input its type and shape. Then the arrays of the step and of each table, in the
// order of ops::kStepArrays and ops::kKvArrays, block tables without unused columns, and the
// elements of the inputs.
constexpr size_t kNumbers = 1, kCounts = kNumbers + std::size(ops::kStepNumbers);
constexpr size_t kTables = kCounts + 3;                          // offset of the tables
constexpr size_t kTableHeader = std::size(ops::kKvNumbers) + 1;  // numbers, then the width
constexpr size_t kInputHeader = 2 + TensorView::kMaxRank;        // type, rank, shape
constexpr size_t kMaxInputs = 8;
constexpr size_t kMaxTables = (kFirstPiece - kTables - kMaxInputs * kInputHeader) / kTableHeader;
static_assert(std::size(ops::kStepArrays) < 32);

// Entries of the table that the longest context of the batch takes.
int32_t TableWidth(const ops::StepBatch& batch, const ops::KvArrays& table) {
  int32_t longest = 0;
  for (int32_t r = 0; r < batch.num_requests; ++r) longest = std::max(longest, batch.seq_lens[r]);
  return table.recent_states + (longest + table.block_size - 1) / table.block_size;
}

size_t HeaderSize(const MessageStep& header) {
  return kTables + header.tables.size() * kTableHeader + header.inputs.size() * kInputHeader;
}

int64_t Int32sOf(const TensorView& input) {
  return (input.Elements() * RowBytes(input.dtype, 1) + 3) / 4;
}

uint32_t PresentArrays(const ops::StepArrays& step) {
  uint32_t present = 0;
  for (size_t a = 0; a < std::size(ops::kStepArrays); ++a) {
    const auto& info = ops::kStepArrays[a];
    if (!info.if_declared || step.*info.data != nullptr) present |= uint32_t{1} << a;
  }
  return present;
}

// The numbers of a message; its tables have no arrays yet, and their widths as strides.
MessageStep ReadHeader(std::span<const int32_t> message) {
  MessageStep header;
  const int32_t* at = message.data() + kNumbers;
  for (const auto& info : ops::kStepNumbers) header.step.*info.value = *at++;
  header.present = static_cast<uint32_t>(*at++);
  header.tables.resize(std::min(static_cast<size_t>(*at++), kMaxTables));
  header.inputs.resize(std::min(static_cast<size_t>(*at++), kMaxInputs));
  for (ops::KvArrays& table : header.tables) {
    for (const auto& info : ops::kKvNumbers) table.*info.value = *at++;
    table.block_table_stride = *at++;
  }
  for (TensorView& input : header.inputs) {
    input.dtype = static_cast<DType>(*at++);
    input.rank = *at++;
    for (int64_t& size : input.shape) size = *at++;
  }
  return header;
}

// Calls visit(array, its int32s) for each array of the message, in order.
template <typename Visit>
void ForEachArray(MessageStep& header, const Visit& visit) {
  for (size_t a = 0; a < std::size(ops::kStepArrays); ++a) {
    const auto& info = ops::kStepArrays[a];
    if ((header.present >> a & 1) == 0) continue;
    visit(header.step.*info.data, ops::NumRows(info, header.step) * info.columns);
  }
  for (ops::KvArrays& table : header.tables) {
    for (const auto& info : ops::kKvArrays) {
      visit(table.*info.data,
            ops::NumRows(info, header.step) * ops::NumColumns(info, table.block_table_stride));
    }
  }
}

// Int32s of a step with this header, header included.
size_t MessageSize(MessageStep& header) {
  size_t size = HeaderSize(header);
  ForEachArray(header, [&size](const int32_t*, int64_t count) { size += count; });
  for (const TensorView& input : header.inputs) size += static_cast<size_t>(Int32sOf(input));
  return size;
}

void AppendHeader(const ops::StepBatch& batch, std::vector<int32_t>* message) {
  *message = {static_cast<int32_t>(MessageKind::kStep)};
  for (const auto& info : ops::kStepNumbers) message->push_back(batch.*info.value);
  message->push_back(static_cast<int32_t>(PresentArrays(batch)));
  message->push_back(static_cast<int32_t>(batch.kv.size()));
  message->push_back(static_cast<int32_t>(batch.inputs.size()));
  for (const ops::KvArrays& table : batch.kv) {
    for (const auto& info : ops::kKvNumbers) message->push_back(table.*info.value);
    message->push_back(TableWidth(batch, table));
  }
  for (const TensorView& input : batch.inputs) {
    message->push_back(static_cast<int32_t>(input.dtype));
    message->push_back(input.rank);
    for (int64_t size : input.shape) message->push_back(static_cast<int32_t>(size));
  }
}

void AppendInput(const TensorView& input, std::vector<int32_t>* message) {
  const size_t begin = message->size();
  message->resize(begin + static_cast<size_t>(Int32sOf(input)));
  if (input.Elements() == 0) return;
  auto* to = reinterpret_cast<std::byte*>(message->data() + begin);
  const auto row_bytes = static_cast<size_t>(RowBytes(input.dtype, input.RowElements()));
  for (int64_t r = 0; r < input.shape[0]; ++r, to += row_bytes) {
    std::memcpy(to, input.Row<std::byte>(r), row_bytes);
  }
}

void AppendArrays(const ops::StepBatch& batch, std::vector<int32_t>* message) {
  const auto append = [&](const int32_t* data, int64_t size) {
    message->insert(message->end(), data, data + size);
  };
  for (const auto& info : ops::kStepArrays) {
    if (info.if_declared && batch.*info.data == nullptr) continue;
    append(batch.*info.data, ops::NumRows(info, batch) * info.columns);
  }
  for (const ops::KvArrays& table : batch.kv) {
    for (const auto& info : ops::kKvArrays) {
      const int64_t rows = ops::NumRows(info, batch);
      if (!info.per_block) append(table.*info.data, rows);
      for (int64_t r = 0; info.per_block && r < rows; ++r) {
        append(table.*info.data + r * table.block_table_stride, TableWidth(batch, table));
      }
    }
  }
}

// Inputs have a floating-point type, and at most so many bytes in all.
Status CheckInputs(const MessageStep& header, const StepBounds& bounds) {
  int64_t left = bounds.input_bytes;
  for (const TensorView& input : header.inputs) {
    const bool is_float =
        input.dtype == DType::kF32 || input.dtype == DType::kBF16 || input.dtype == DType::kF16;
    bool fits = is_float && input.rank >= 1 && input.rank <= TensorView::kMaxRank;
    int64_t bytes = fits ? RowBytes(input.dtype, 1) : 0;
    for (int32_t d = 0; fits && d < input.rank; ++d) {
      const int64_t size = input.shape[static_cast<size_t>(d)];
      fits = size >= 0 && (size == 0 || bytes <= left / size);
      bytes *= size;
    }
    if (!fits) {
      return Internal("the inputs of a step exceed this rank's " +
                      std::to_string(bounds.input_bytes) + " bytes: the ranks differ");
    }
    left -= bytes;
  }
  return OkStatus();
}

Status CheckHeader(const MessageStep& header, const StepBounds& bounds) {
  const auto check = [&](int64_t count, const char* what, int32_t limit) {
    if (count >= 0 && count <= limit) return OkStatus();
    return Internal("a step of " + std::to_string(count) + " " + what + " exceeds this rank's " +
                    std::to_string(limit) + ": the ranks differ");
  };
  PAGEMILL_RETURN_IF_ERROR(check(header.step.num_tokens, "tokens", bounds.max_num_tokens));
  PAGEMILL_RETURN_IF_ERROR(check(header.step.num_requests, "requests", bounds.max_num_seqs));
  PAGEMILL_RETURN_IF_ERROR(
      check(header.step.num_logits_rows, "rows of logits", bounds.max_num_logits_rows));
  PAGEMILL_RETURN_IF_ERROR(check(header.step.num_media_rows, "media rows", header.step.num_tokens));
  PAGEMILL_RETURN_IF_ERROR(check(header.step.num_text_rows, "text rows", header.step.num_tokens));
  for (const ops::KvArrays& table : header.tables) {
    PAGEMILL_RETURN_IF_ERROR(check(table.block_table_stride - table.recent_states,
                                   "blocks of a request", bounds.num_blocks));
  }
  return CheckInputs(header, bounds);
}

}  // namespace

Status WriteStep(const ops::StepBatch& batch, const StepBounds& bounds,
                 std::vector<int32_t>* message) {
  if (batch.kv.size() > kMaxTables) {
    return Unimplemented("ranks exchange at most " + std::to_string(kMaxTables) + " block tables");
  }
  if (batch.inputs.size() > kMaxInputs) {
    return Unimplemented("ranks exchange at most " + std::to_string(kMaxInputs) + " inputs");
  }
  AppendHeader(batch, message);
  PAGEMILL_RETURN_IF_ERROR(CheckHeader(ReadHeader(*message), bounds));
  AppendArrays(batch, message);
  for (const TensorView& input : batch.inputs) AppendInput(input, message);
  return OkStatus();
}

StatusOr<size_t> StepSize(std::span<const int32_t> first_piece, const StepBounds& bounds) {
  MessageStep header = ReadHeader(first_piece);
  PAGEMILL_RETURN_IF_ERROR(CheckHeader(header, bounds));
  return MessageSize(header);
}

MessageStep ReadStep(std::span<int32_t> message) {
  MessageStep header = ReadHeader(message);
  int32_t* at = message.data() + HeaderSize(header);
  ForEachArray(
      header, [&at](const int32_t*& array, int64_t size) { array = std::exchange(at, at + size); });
  for (TensorView& input : header.inputs) {
    input.data = std::exchange(at, at + Int32sOf(input));
    input.row_stride_bytes = RowBytes(input.dtype, input.RowElements());
  }
  return header;
}

}  // namespace pagemill::runner
