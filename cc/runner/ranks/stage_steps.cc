#include "cc/runner/ranks/stage_steps.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "cc/device/cpu_share.h"

namespace pagemill::runner {
namespace {

// What a rank sends is its own; the receiver checks it against the inputs of its program.
StepBounds BoundsOfSent(StepBounds bounds) {
  bounds.input_bytes = std::numeric_limits<int64_t>::max();
  return bounds;
}

Status Send(comm::Group& group, int32_t to, std::vector<int32_t>* message) {
  message->resize(std::max(message->size(), kFirstPiece));
  const std::span<const std::byte> all = std::as_bytes(std::span(*message));
  PAGEMILL_RETURN_IF_ERROR(group.Send(all.first(kFirstPiece * sizeof(int32_t)), to));
  return group.Send(all.subspan(kFirstPiece * sizeof(int32_t)), to);
}

Status Receive(comm::Group& group, int32_t from, const StepBounds& bounds,
               std::vector<int32_t>* message) {
  message->resize(kFirstPiece);
  PAGEMILL_RETURN_IF_ERROR(group.Receive(std::as_writable_bytes(std::span(*message)), from));
  PAGEMILL_ASSIGN_OR_RETURN(const size_t size, StepSize(*message, bounds));
  message->resize(std::max(size, kFirstPiece));
  const std::span<std::byte> all = std::as_writable_bytes(std::span(*message));
  return group.Receive(all.subspan(kFirstPiece * sizeof(int32_t)), from);
}

Status Run(program::Executor* executor, const MessageStep& step, const Stage& stage,
           program::ExecutorOutput* output) {
  std::vector<ops::KvArrays> tables;
  for (const int32_t table : stage.tables) {
    if (static_cast<size_t>(table) >= step.tables.size()) {
      return Internal("a step lacks a block table of this stage: the ranks differ");
    }
    tables.push_back(step.tables[static_cast<size_t>(table)]);
  }
  if (step.inputs.size() != stage.receives.size()) {
    return Internal("a step has " + std::to_string(step.inputs.size()) + " values for the " +
                    std::to_string(stage.receives.size()) + " of this stage: the ranks differ");
  }
  return executor->Execute({step.step, tables, step.inputs}, output);
}

// The values of the step that the next stage reads.
StatusOr<std::vector<TensorView>> ValuesToSend(const MessageStep& step, const Stage& stage,
                                               const program::ExecutorOutput& output) {
  std::vector<TensorView> values;
  for (const std::string& name : stage.sends) {
    TensorView value = output.Find(name);
    const auto received = std::ranges::find(stage.receives, name);
    if (value.rank == 0 && received != stage.receives.end()) {
      value = step.inputs[static_cast<size_t>(received - stage.receives.begin())];
    }
    if (value.rank == 0) return Internal("the program of this stage has no output " + name);
    values.push_back(value);
  }
  return values;
}

// Runs the step of a message and sends it on.
Status PassOn(program::Executor* executor, comm::Group& group, const StepBounds& bounds,
              const Stage& stage, std::span<int32_t> received, std::vector<int32_t>* sent) {
  const MessageStep step = ReadStep(received);
  program::ExecutorOutput output;
  PAGEMILL_RETURN_IF_ERROR(Run(executor, step, stage, &output));
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<TensorView> values,
                            ValuesToSend(step, stage, output));
  PAGEMILL_RETURN_IF_ERROR(WriteStep({step.step, step.tables, values}, BoundsOfSent(bounds), sent));
  return Send(group, (group.rank() + 1) % group.num_ranks(), sent);
}

}  // namespace

StagedExecutor::StagedExecutor(program::Executor* executor, comm::Group* group,
                               const StepBounds& bounds, Stage stage, std::vector<int32_t> cpus)
    : Executor(/*max_steps_in_flight=*/group->num_ranks(), /*samples=*/false, /*pipelined=*/true),
      executor_(executor),
      group_(group),
      bounds_(bounds),
      stage_(std::move(stage)),
      cpus_(std::move(cpus)) {}

StagedExecutor::~StagedExecutor() { group_->Leave(); }

Status StagedExecutor::Enqueue(const ops::StepBatch& batch) {
  device::PinThisThread(std::exchange(cpus_, {}));
  if (num_sent_ + has_received_ == max_steps_in_flight()) {
    return FailedPrecondition("as many steps are in flight as there are stages");
  }
  PAGEMILL_RETURN_IF_ERROR(WriteStep(batch, bounds_, &sent_));
  if (num_sent_ == group_->num_ranks() - 1) PAGEMILL_RETURN_IF_ERROR(ReceiveOldest());
  PAGEMILL_RETURN_IF_ERROR(Send(*group_, /*to=*/1, &sent_));
  ++num_sent_;
  return OkStatus();
}

Status StagedExecutor::ReceiveOldest() {
  PAGEMILL_RETURN_IF_ERROR(Receive(*group_, /*from=*/group_->num_ranks() - 1, bounds_, &received_));
  --num_sent_;
  has_received_ = true;
  return OkStatus();
}

Status StagedExecutor::Collect(program::ExecutorOutput* output) {
  if (!has_received_ && num_sent_ == 0) {
    return FailedPrecondition("no step was enqueued that is not collected");
  }
  if (!has_received_) PAGEMILL_RETURN_IF_ERROR(ReceiveOldest());
  has_received_ = false;
  return Run(executor_, ReadStep(received_), stage_, output);
}

Status FollowStages(program::Executor* executor, comm::Group& group, const StepBounds& bounds,
                    const Stage& stage) {
  std::vector<int32_t> received, sent;
  while (true) {
    Status status = Receive(group, group.rank() - 1, bounds, &received);
    if (status.ok()) status = PassOn(executor, group, bounds, stage, received, &sent);
    if (status.ok()) continue;
    group.Leave();
    return status;
  }
}

}  // namespace pagemill::runner
