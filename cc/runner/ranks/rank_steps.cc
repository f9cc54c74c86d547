#include "cc/runner/ranks/rank_steps.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "cc/device/cpu_share.h"
#include "cc/ops/sample/row_draw.h"

namespace pagemill::runner {
namespace {

// A message: its kind, the numbers of the step (ops::kStepNumbers), which arrays of the step it has
// (a bit each), how many block tables and inputs; for each table its numbers (ops::kKvNumbers) and
// width, for each input its type and shape. Then the arrays of the step and of each table, in the
// order of ops::kStepArrays and ops::kKvArrays, block tables without unused columns, and the
// elements of the inputs. Or, of tokens to choose from the step before: its kind, the sizes of the
// lists of program::StepDraws, then their elements. Or, of an adapter: its kind, the slot that it
// gets, or kForgotten, and its id in two words.
constexpr int32_t kEnd = 1, kStep = 2, kDraws = 3, kAdapter = 4;
constexpr size_t kSlot = 1, kAdapterId = 2, kAdapterSize = 4;
constexpr int32_t kForgotten = -1;
constexpr size_t kDrawCounts = 1, kNumRows = kDrawCounts;
constexpr int64_t kMaxTokens = 1 << 22;  // of a vocabulary
constexpr size_t kFirstPiece = 1024;  // int32s that every message has, padded; holds the header
constexpr size_t kKind = 0, kNumbers = 1, kCounts = kNumbers + std::size(ops::kStepNumbers);
constexpr size_t kTables = kCounts + 3;                          // offset of the tables
constexpr size_t kTableHeader = std::size(ops::kKvNumbers) + 1;  // numbers, then the width
constexpr size_t kInputHeader = 2 + TensorView::kMaxRank;        // type, rank, shape
constexpr size_t kMaxInputs = 8;
constexpr size_t kMaxTables = (kFirstPiece - kTables - kMaxInputs * kInputHeader) / kTableHeader;
static_assert(std::size(ops::kStepArrays) < 32);

std::span<std::byte> BytesOf(std::span<int32_t> values) { return std::as_writable_bytes(values); }

// Entries of the table that the longest context of the batch takes.
int32_t TableWidth(const ops::StepBatch& batch, const ops::KvArrays& table) {
  int32_t longest = 0;
  for (int32_t r = 0; r < batch.num_requests; ++r) longest = std::max(longest, batch.seq_lens[r]);
  return table.recent_states + (longest + table.block_size - 1) / table.block_size;
}

// The numbers of a message; its tables have no arrays yet, and their widths as strides.
struct Header {
  ops::StepArrays step;
  std::vector<ops::KvArrays> tables;
  std::vector<TensorView> inputs;  // dense
  uint32_t present = 0;            // bit a: the step has ops::kStepArrays[a]

  size_t size() const {
    return kTables + tables.size() * kTableHeader + inputs.size() * kInputHeader;
  }
};

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

Header ReadHeader(std::span<const int32_t> message) {
  Header header;
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
void ForEachArray(Header& header, const Visit& visit) {
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
size_t MessageSize(Header& header) {
  size_t size = header.size();
  ForEachArray(header, [&size](const int32_t*, int64_t count) { size += count; });
  for (const TensorView& input : header.inputs) size += static_cast<size_t>(Int32sOf(input));
  return size;
}

void WriteHeader(const ops::StepBatch& batch, std::vector<int32_t>* message) {
  *message = {kStep};
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

void WriteStep(const ops::StepBatch& batch, std::vector<int32_t>* message) {
  WriteHeader(batch, message);
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
  for (const TensorView& input : batch.inputs) AppendInput(input, message);
}

// The header, over the arrays of a whole message.
Header ReadStep(std::span<int32_t> message) {
  Header header = ReadHeader(message);
  int32_t* at = message.data() + header.size();
  ForEachArray(
      header, [&at](const int32_t*& array, int64_t size) { array = std::exchange(at, at + size); });
  for (TensorView& input : header.inputs) {
    input.data = std::exchange(at, at + Int32sOf(input));
    input.row_stride_bytes = RowBytes(input.dtype, input.RowElements());
  }
  return header;
}

// The lists of draws, in the order of a message: visit(list, its most elements, for a row or slot).
// `scored` is none of them: rank 0 alone reports log probabilities.
template <typename Draws, typename Visit>
void ForEachDrawList(Draws& draws, const Visit& visit) {
  visit(draws.rows, 1);
  visit(draws.masks, kMaxTokens / 32);
  visit(draws.cleared_slots, 1);
  visit(draws.counts, kMaxTokens);
  visit(draws.biases, kMaxTokens);
  visit(draws.penalties, 1);
}
constexpr size_t kNumDrawLists = 6, kDrawsHeader = kDrawCounts + kNumDrawLists;

template <typename List>
constexpr size_t kWordsOf = sizeof(typename List::value_type) / sizeof(int32_t);

void WriteDraws(const program::StepDraws& draws, std::vector<int32_t>* message) {
  *message = {kDraws};
  ForEachDrawList(draws, [message](const auto& list, int64_t) {
    message->push_back(static_cast<int32_t>(list.size()));
  });
  ForEachDrawList(draws, [message](const auto& list, int64_t) {
    const size_t begin = message->size();
    message->resize(begin + list.size() * kWordsOf<std::decay_t<decltype(list)>>);
    std::ranges::copy(std::as_bytes(list), BytesOf(std::span(*message).subspan(begin)).begin());
  });
}

// The draws of a whole message, in memory of their own.
struct Draws {
  explicit Draws(std::span<const int32_t> message) {
    size_t size = kDrawCounts, at = kDrawsHeader;
    ForEachDrawList(*this, [&](auto& list, int64_t) {
      list.resize(static_cast<size_t>(message[size++]));
      const auto to = std::as_writable_bytes(std::span(list));
      std::ranges::copy(std::as_bytes(message.subspan(at)).first(to.size()), to.begin());
      at += list.size() * kWordsOf<std::decay_t<decltype(list)>>;
    });
  }
  program::StepDraws view() const {
    return {rows, masks, cleared_slots, counts, biases, penalties};
  }

  std::vector<ops::RowDraw> rows;
  std::vector<uint32_t> masks;
  std::vector<int32_t> cleared_slots;
  std::vector<ops::TokenCount> counts;
  std::vector<ops::LogitBias> biases;
  std::vector<ops::RowPenalties> penalties;
};

std::vector<int32_t> AdapterMessage(int32_t slot, step::AdapterId adapter) {
  const uint64_t id = adapter.value();
  return {kAdapter, slot, static_cast<int32_t>(id & 0xffffffff), static_cast<int32_t>(id >> 32)};
}

Status FollowAdapter(std::span<const int32_t> message, const FollowedAdapters& adapters) {
  if (!adapters.set || !adapters.forget) return Internal("this rank has no adapters, others have");
  const auto word = [&message](size_t i) { return uint64_t{static_cast<uint32_t>(message[i])}; };
  const step::AdapterId id(word(kAdapterId) | word(kAdapterId + 1) << 32);
  if (message[kSlot] != kForgotten) return adapters.set(message[kSlot], id);
  adapters.forget(id);
  return OkStatus();
}

// Inputs have a floating-point type, and at most so many bytes in all.
Status CheckInputs(const Header& header, const StepBounds& bounds) {
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

Status CheckHeader(const Header& header, const StepBounds& bounds) {
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
    PAGEMILL_RETURN_IF_ERROR(
        check(table.block_table_stride - table.recent_states, "blocks of a request",
              bounds.num_blocks));
  }
  return CheckInputs(header, bounds);
}

// Int32s of a message of draws.
StatusOr<size_t> CheckedDrawsSize(std::span<const int32_t> message, const StepBounds& bounds) {
  const int64_t most_rows = std::max(bounds.max_num_logits_rows, bounds.max_num_seqs);
  bool fits = message[kNumRows] >= 0 && message[kNumRows] <= bounds.max_num_logits_rows;
  size_t count = kDrawCounts, size = kDrawsHeader;
  const program::StepDraws no_draws;
  ForEachDrawList(no_draws, [&](const auto& list, int64_t most) {
    const int64_t elements = message[count++];
    fits = fits && elements >= 0 && elements <= most_rows * most;
    size += static_cast<size_t>(elements) * kWordsOf<std::decay_t<decltype(list)>>;
  });
  if (fits) return size;
  return Internal("draws for " + std::to_string(message[kNumRows]) +
                  " rows of logits exceed this rank's " +
                  std::to_string(bounds.max_num_logits_rows) + ": the ranks differ");
}

// Int32s of a message of which the first piece is there; refuses what exceeds the bounds.
StatusOr<size_t> CheckedSize(std::span<const int32_t> message, const StepBounds& bounds) {
  if (message[kKind] == kDraws) return CheckedDrawsSize(message, bounds);
  if (message[kKind] == kAdapter) return kAdapterSize;
  Header header = ReadHeader(message);
  PAGEMILL_RETURN_IF_ERROR(CheckHeader(header, bounds));
  return MessageSize(header);
}

Status EnqueueStep(std::span<int32_t> message, program::Executor* executor) {
  const Header header = ReadStep(message);
  return executor->Enqueue({header.step, header.tables, header.inputs});
}

Status Send(comm::Group& group, std::vector<int32_t>* message) {
  message->resize(std::max(message->size(), kFirstPiece));
  const std::span<int32_t> all = *message;
  PAGEMILL_RETURN_IF_ERROR(group.Broadcast(BytesOf(all.first(kFirstPiece)), /*root=*/0));
  return group.Broadcast(BytesOf(all.subspan(kFirstPiece)), /*root=*/0);
}

Status Receive(comm::Group& group, const StepBounds& bounds, std::vector<int32_t>* message) {
  message->resize(kFirstPiece);
  PAGEMILL_RETURN_IF_ERROR(group.Broadcast(BytesOf(*message), /*root=*/0));
  if ((*message)[kKind] == kEnd) return OkStatus();
  PAGEMILL_ASSIGN_OR_RETURN(const size_t size, CheckedSize(*message, bounds));
  message->resize(std::max(size, kFirstPiece));
  return group.Broadcast(BytesOf(std::span(*message).subspan(kFirstPiece)), /*root=*/0);
}

}  // namespace

LeadingExecutor::LeadingExecutor(program::Executor* executor, comm::Group* group,
                                 const StepBounds& bounds, std::vector<int32_t> cpus)
    : Executor(executor->max_steps_in_flight(), executor->samples()),
      executor_(executor),
      group_(group),
      bounds_(bounds),
      cpus_(std::move(cpus)) {}

LeadingExecutor::~LeadingExecutor() {
  message_ = {kEnd};
  (void)Send(*group_, &message_);  // fails if the group has ended
}

Status LeadingExecutor::Enqueue(const ops::StepBatch& batch) {
  device::PinThisThread(std::exchange(cpus_, {}));
  if (batch.kv.size() > kMaxTables) {
    return Unimplemented("ranks exchange at most " + std::to_string(kMaxTables) + " block tables");
  }
  if (batch.inputs.size() > kMaxInputs) {
    return Unimplemented("ranks exchange at most " + std::to_string(kMaxInputs) + " inputs");
  }
  WriteStep(batch, &message_);
  PAGEMILL_RETURN_IF_ERROR(CheckHeader(ReadHeader(message_), bounds_));
  PAGEMILL_RETURN_IF_ERROR(Send(*group_, &message_));
  return EnqueueStep(message_, executor_);
}

Status LeadingExecutor::Collect(program::ExecutorOutput* output) {
  return executor_->Collect(output);
}

Status LeadingExecutor::Sample(const program::StepDraws& draws) {
  WriteDraws(draws, &message_);
  PAGEMILL_RETURN_IF_ERROR(CheckedSize(message_, bounds_).status());
  PAGEMILL_RETURN_IF_ERROR(Send(*group_, &message_));
  return executor_->Sample(draws);
}

Status LeadingExecutor::SetAdapter(int32_t slot, step::AdapterId adapter) {
  message_ = AdapterMessage(slot, adapter);
  return Send(*group_, &message_);
}

Status LeadingExecutor::ForgetAdapter(step::AdapterId adapter) {
  return SetAdapter(kForgotten, adapter);
}

Status FollowSteps(program::Executor* executor, comm::Group& group, const StepBounds& bounds,
                   const FollowedAdapters& adapters) {
  std::vector<int32_t> message;
  program::ExecutorOutput output;  // every rank has the same
  int32_t in_flight = 0;
  while (true) {
    Status status = Receive(group, bounds, &message);
    if (status.ok() && message[kKind] == kEnd) return OkStatus();
    if (status.ok() && message[kKind] == kDraws) {
      status = executor->Sample(Draws(message).view());
      if (status.ok()) continue;
    } else if (status.ok() && message[kKind] == kAdapter) {
      status = FollowAdapter(message, adapters);
      if (status.ok()) continue;
    }
    if (status.ok() && in_flight == executor->max_steps_in_flight()) {
      status = executor->Collect(&output);
      --in_flight;
    }
    if (status.ok()) status = EnqueueStep(message, executor);
    if (status.ok()) {
      ++in_flight;
      continue;
    }
    group.Leave();
    // The others may have gone because this rank's device failed, of which its steps know.
    for (; in_flight > 0; --in_flight) {
      const Status own = executor->Collect(&output);
      if (!own.ok()) return own;
    }
    return status;
  }
}

}  // namespace pagemill::runner
