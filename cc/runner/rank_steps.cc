#include "cc/runner/rank_steps.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cc/device/cpu_share.h"

namespace pagemill::runner {
namespace {

// A message: a header, then the arrays of the batch, the block table without unused columns.
enum Header : size_t {
  kKind,
  kTokens,
  kRequests,
  kLogitsRows,
  kBlockSize,
  kTableWidth,
  kArgmaxColumns,
  kHeaderSize,
};
constexpr int32_t kEnd = 1, kStep = 2;
constexpr size_t kFirstPiece = 1024;  // int32s that every message has, padded

std::span<std::byte> BytesOf(std::span<int32_t> values) { return std::as_writable_bytes(values); }

// Of a step with this header, header included.
size_t MessageSize(std::span<const int32_t> header) {
  const auto field = [&](Header name) { return static_cast<size_t>(header[name]); };
  return kHeaderSize + 3 * field(kTokens) + 2 * field(kRequests) + 1 +
         field(kRequests) * field(kTableWidth) + field(kLogitsRows);
}

// Blocks that the longest context of the batch takes.
int32_t TableWidth(const ops::BatchView& batch) {
  int32_t longest = 0;
  for (int32_t r = 0; r < batch.num_requests; ++r) longest = std::max(longest, batch.seq_lens[r]);
  return (longest + batch.block_size - 1) / batch.block_size;
}

void WriteStep(const ops::BatchView& batch, std::vector<int32_t>* message) {
  const int32_t width = TableWidth(batch);
  *message = {
      kStep, batch.num_tokens,    batch.num_requests, batch.num_logits_rows, batch.block_size,
      width, batch.argmax_columns};
  const auto append = [&](const int32_t* data, int32_t size) {
    message->insert(message->end(), data, data + size);
  };
  append(batch.token_ids, batch.num_tokens);
  append(batch.positions, batch.num_tokens);
  append(batch.slot_mapping, batch.num_tokens);
  append(batch.query_start, batch.num_requests + 1);
  append(batch.seq_lens, batch.num_requests);
  for (int32_t r = 0; r < batch.num_requests; ++r) {
    append(batch.block_table + r * batch.block_table_stride, width);
  }
  append(batch.logits_rows, batch.num_logits_rows);
}

// The batch over the arrays of a whole message.
ops::BatchView ReadStep(std::span<const int32_t> message) {
  ops::BatchView batch = {.num_tokens = message[kTokens],
                          .num_requests = message[kRequests],
                          .num_logits_rows = message[kLogitsRows],
                          .block_size = message[kBlockSize],
                          .argmax_columns = message[kArgmaxColumns]};
  const int32_t* at = message.data() + kHeaderSize;
  const auto take = [&](int64_t size) { return std::exchange(at, at + size); };
  batch.token_ids = take(batch.num_tokens);
  batch.positions = take(batch.num_tokens);
  batch.slot_mapping = take(batch.num_tokens);
  batch.query_start = take(batch.num_requests + 1);
  batch.seq_lens = take(batch.num_requests);
  batch.block_table_stride = message[kTableWidth];
  batch.block_table = take(batch.num_requests * batch.block_table_stride);
  batch.logits_rows = take(batch.num_logits_rows);
  return batch;
}

Status CheckHeader(std::span<const int32_t> header, const StepBounds& bounds) {
  const auto check = [&](Header field, const char* what, int32_t limit) {
    if (header[field] >= 0 && header[field] <= limit) return OkStatus();
    return Internal("a step of " + std::to_string(header[field]) + " " + what +
                    " exceeds this rank's " + std::to_string(limit) + ": the ranks differ");
  };
  PM_RETURN_IF_ERROR(check(kTokens, "tokens", bounds.max_num_tokens));
  PM_RETURN_IF_ERROR(check(kRequests, "requests", bounds.max_num_seqs));
  PM_RETURN_IF_ERROR(check(kLogitsRows, "rows of logits", bounds.max_num_logits_rows));
  return check(kTableWidth, "blocks of a request", bounds.num_blocks);
}

Status Send(comm::Group& group, std::vector<int32_t>* message) {
  message->resize(std::max(message->size(), kFirstPiece));
  const std::span<int32_t> all = *message;
  PM_RETURN_IF_ERROR(group.Broadcast(BytesOf(all.first(kFirstPiece)), /*root=*/0));
  return group.Broadcast(BytesOf(all.subspan(kFirstPiece)), /*root=*/0);
}

Status Receive(comm::Group& group, const StepBounds& bounds, std::vector<int32_t>* message) {
  message->resize(kFirstPiece);
  PM_RETURN_IF_ERROR(group.Broadcast(BytesOf(*message), /*root=*/0));
  if ((*message)[kKind] == kEnd) return OkStatus();
  PM_RETURN_IF_ERROR(CheckHeader(*message, bounds));
  message->resize(std::max(MessageSize(*message), kFirstPiece));
  return group.Broadcast(BytesOf(std::span(*message).subspan(kFirstPiece)), /*root=*/0);
}

}  // namespace

LeadingExecutor::LeadingExecutor(program::Executor* executor, comm::Group* group,
                                 const StepBounds& bounds, std::vector<int32_t> cpus)
    : executor_(executor), group_(group), bounds_(bounds), cpus_(std::move(cpus)) {}

LeadingExecutor::~LeadingExecutor() {
  message_ = {kEnd};
  (void)Send(*group_, &message_);  // where the group has ended, nobody is left to tell
}

Status LeadingExecutor::Execute(const ops::BatchView& batch, program::ExecutorOutput* output) {
  device::PinThisThread(std::exchange(cpus_, {}));
  WriteStep(batch, &message_);
  PM_RETURN_IF_ERROR(CheckHeader(message_, bounds_));
  PM_RETURN_IF_ERROR(Send(*group_, &message_));
  return executor_->Execute(ReadStep(message_), output);
}

Status FollowSteps(program::Executor* executor, comm::Group& group, const StepBounds& bounds) {
  std::vector<int32_t> message;
  while (true) {
    Status status = Receive(group, bounds, &message);
    if (status.ok() && message[kKind] == kEnd) return OkStatus();
    program::ExecutorOutput output;
    if (status.ok()) status = executor->Execute(ReadStep(message), &output);
    if (status.ok()) continue;
    group.Leave();
    return status;
  }
}

}  // namespace pagemill::runner
