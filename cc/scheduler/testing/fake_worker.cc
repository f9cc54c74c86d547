#include "cc/scheduler/testing/fake_worker.h"

namespace pagemill::scheduler {

using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;
using Direction = KvTransfer::Direction;

void FakeWorker::Start(std::vector<KvTransfer> transfers) {
  for (KvTransfer& transfer : transfers) copying_.push_back({std::move(transfer), std::nullopt});
}

void FakeWorker::Move(std::vector<KvTransferResult>* results) {
  for (uint32_t n = (*random_)() % 5; n > 0 && !copying_.empty(); --n) {
    const size_t which = (*random_)() % copying_.size();
    Copying& copying = copying_[which];
    if (!copying.result) {
      if (copying.transfer.direction == Direction::kForget) RunBefore(which);
      copying.result = Run(copying.transfer, Fails());
      continue;
    }
    results->push_back(*copying.result);
    if ((*random_)() % 20 == 0) results->push_back(*copying.result);
    copying_.erase(copying_.begin() + static_cast<ptrdiff_t>(which));
  }
}

bool FakeWorker::Fails() { return static_cast<int>((*random_)() % 100) < percent_failing_; }

void FakeWorker::RunBefore(size_t which) {
  for (size_t i = 0; i < which; ++i) {
    if (!copying_[i].result) copying_[i].result = Run(copying_[i].transfer, Fails());
  }
}

std::optional<kv_cache::TransferId> FakeWorker::RandomTransfer() {
  if (copying_.empty()) return std::nullopt;
  return copying_[(*random_)() % copying_.size()].transfer.id;
}

int32_t FakeWorker::NumSending() const {
  size_t count = 0;
  for (const Copying& copying : copying_) {
    if (copying.transfer.direction == Direction::kSend) count += copying.transfer.blocks.size();
  }
  return static_cast<int32_t>(count);
}

void FakeWorker::LoseSomeFile() {
  if (!files_.empty()) files_.erase(files_.begin());
}

KvTransferResult FakeWorker::Run(const KvTransfer& transfer, bool fails) {
  if (transfer.direction == Direction::kForget) {
    files_.clear();
    return {transfer.id, 0, OkStatus()};
  }
  const size_t size = transfer.blocks.size();
  const size_t most = fails ? (*random_)() % size : size;
  KvTransferResult result{transfer.id, 0, fails ? Internal("injected") : OkStatus()};
  for (size_t i = 0; i < most; ++i) {
    if (!Copy(transfer, i)) {
      if (transfer.direction != Direction::kProbe) result.status = NotFound("it is gone");
      break;
    }
    ++result.num_blocks_done;
  }
  return result;
}

bool FakeWorker::Copy(const KvTransfer& transfer, size_t i) {
  const kv_cache::BlockContent& block = transfer.blocks[i];
  const std::pair file_name{block.hash.words, block.group.value()};
  if (transfer.direction == Direction::kProbe) return files_.contains(file_name);
  Page* place = transfer.medium_slots.empty()
                    ? nullptr
                    : &slots_[{transfer.medium, transfer.medium_slots[i]}];
  if (transfer.direction == Direction::kDemote) {
    *place = slots_.at({"host", transfer.source_slots[i]});
    return true;
  }
  if (transfer.direction == Direction::kStore || transfer.direction == Direction::kSend) {
    if (place == nullptr) place = &files_[file_name];
    place->resize(pages_->page_bytes(block.group));
    return pages_->Read(block.group, block.block, *place).ok();
  }
  if (place == nullptr) {
    const auto file = files_.find(file_name);
    if (file == files_.end()) return false;
    place = &file->second;
  }
  return pages_->Write(block.group, block.block, *place).ok();
}

}  // namespace pagemill::scheduler
