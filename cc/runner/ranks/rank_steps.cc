#include "cc/runner/ranks/rank_steps.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "cc/device/cpu_share.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/runner/ranks/rank_control.h"

namespace pagemill::runner {
namespace {

// Of tokens to choose from the step before, a message is its kind, the sizes of the lists of
// program::StepDraws, then their elements. Of an adapter: its kind, the slot that it gets, or
// kForgotten, and its id in two words.
constexpr size_t kSlot = 1, kAdapterId = 2, kAdapterSize = 4;
constexpr int32_t kForgotten = -1;
constexpr size_t kDrawCounts = 1, kNumRows = kDrawCounts;
constexpr int64_t kMaxTokens = 1 << 22;  // of a vocabulary

std::span<std::byte> BytesOf(std::span<int32_t> values) { return std::as_writable_bytes(values); }

int32_t Word(MessageKind kind) { return static_cast<int32_t>(kind); }

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
  *message = {Word(MessageKind::kDraws)};
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
  return {Word(MessageKind::kAdapter), slot, static_cast<int32_t>(id & 0xffffffff),
          static_cast<int32_t>(id >> 32)};
}

Status FollowAdapter(std::span<const int32_t> message, const FollowedAdapters& adapters) {
  if (!adapters.set || !adapters.forget) return Internal("this rank has no adapters, others have");
  const auto word = [&message](size_t i) { return uint64_t{static_cast<uint32_t>(message[i])}; };
  const step::AdapterId id(word(kAdapterId) | word(kAdapterId + 1) << 32);
  if (message[kSlot] != kForgotten) return adapters.set(message[kSlot], id);
  adapters.forget(id);
  return OkStatus();
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
  switch (KindOf(message)) {
    case MessageKind::kDraws:
      return CheckedDrawsSize(message, bounds);
    case MessageKind::kAdapter:
      return kAdapterSize;
    case MessageKind::kStep:
      return StepSize(message, bounds);
    case MessageKind::kCollect:
    case MessageKind::kControl:  // its call is in the first piece
    case MessageKind::kEnd:
      break;
  }
  return size_t{1};
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
  PAGEMILL_ASSIGN_OR_RETURN(const size_t size, CheckedSize(*message, bounds));
  message->resize(std::max(size, kFirstPiece));
  return group.Broadcast(BytesOf(std::span(*message).subspan(kFirstPiece)), /*root=*/0);
}

// What a rank does with the messages of rank 0.
class Follower {
 public:
  // `control` and `pages` are null if this rank has none.
  Follower(program::Executor* executor, comm::Group* group, const FollowedAdapters* adapters,
           engine::RunnerControl* control, PageServer* pages)
      : executor_(executor), group_(group), adapters_(adapters), pages_(pages) {
    if (control != nullptr) controlled_.emplace(group, control);
  }

  Status Follow(std::span<int32_t> message) {
    switch (KindOf(message)) {
      case MessageKind::kStep:
        if (num_in_flight_ == executor_->max_steps_in_flight()) {
          PAGEMILL_RETURN_IF_ERROR(Collect());
        }
        PAGEMILL_RETURN_IF_ERROR(executor_->Enqueue(ReadStep(message).view()));
        ++num_in_flight_;
        return OkStatus();
      case MessageKind::kCollect:
        PAGEMILL_RETURN_IF_ERROR(Collect());
        if (pages_ != nullptr) pages_->CountCollected();
        return OkStatus();
      case MessageKind::kDraws:
        return executor_->Sample(Draws(message).view());
      case MessageKind::kAdapter:
        return FollowAdapter(message, *adapters_);
      case MessageKind::kControl:
        return Control(message);
      case MessageKind::kEnd:
        break;
    }
    return Internal("a message of no known kind");
  }

  // The others may have gone because this rank's device failed, of which its steps know.
  Status ReasonOf(Status status) {
    while (num_in_flight_ > 0) {
      Status own = Collect();
      if (!own.ok()) return own;
    }
    return status;
  }

 private:
  Status Control(std::span<const int32_t> message) {
    if (!controlled_) return Internal("this rank's weights stay in memory, those of others do not");
    while (num_in_flight_ > 0) PAGEMILL_RETURN_IF_ERROR(Collect());
    return FollowControl(message, *group_, &*controlled_);
  }

  Status Collect() {
    program::ExecutorOutput output;  // every rank has the same
    --num_in_flight_;
    return executor_->Collect(&output);
  }

  program::Executor* const executor_;
  comm::Group* const group_;
  const FollowedAdapters* const adapters_;
  PageServer* const pages_;
  std::optional<ControlledRank> controlled_;
  int32_t num_in_flight_ = 0;
};

}  // namespace

LeadingExecutor::LeadingExecutor(program::Executor* executor, comm::Group* group,
                                 const StepBounds& bounds, std::vector<int32_t> cpus,
                                 LeadingPages* pages)
    : Executor(executor->max_steps_in_flight(), executor->samples(), executor->pipelined()),
      executor_(executor),
      group_(group),
      bounds_(bounds),
      cpus_(std::move(cpus)),
      pages_(pages) {}

LeadingExecutor::~LeadingExecutor() {
  message_ = {Word(MessageKind::kEnd)};
  (void)Send(*group_, &message_);  // fails if the group has ended
}

Status LeadingExecutor::Enqueue(const ops::StepBatch& batch) {
  device::PinThisThread(std::exchange(cpus_, {}));
  PAGEMILL_RETURN_IF_ERROR(WriteStep(batch, bounds_, &message_));
  PAGEMILL_RETURN_IF_ERROR(Send(*group_, &message_));
  return executor_->Enqueue(ReadStep(message_).view());
}

Status LeadingExecutor::Collect(program::ExecutorOutput* output) {
  if (pipelined() || pages_ != nullptr) {
    message_ = {Word(MessageKind::kCollect)};
    PAGEMILL_RETURN_IF_ERROR(Send(*group_, &message_));
  }
  Status status = executor_->Collect(output);
  if (pages_ != nullptr) pages_->CountCollected();
  return status;
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
                   const FollowedAdapters& adapters, engine::RunnerControl* control,
                   PageServer* pages) {
  std::vector<int32_t> message;
  Follower follower(executor, &group, &adapters, control, pages);
  while (true) {
    Status status = Receive(group, bounds, &message);
    if (status.ok() && KindOf(message) == MessageKind::kEnd) return OkStatus();
    if (status.ok()) status = follower.Follow(message);
    if (status.ok()) continue;
    group.Leave();
    return follower.ReasonOf(std::move(status));
  }
}

}  // namespace pagemill::runner
