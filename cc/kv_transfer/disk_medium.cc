#include "cc/kv_transfer/disk_medium.h"

#include <algorithm>
#include <utility>

#include "cc/base/xxh3.h"
#include "cc/kv_transfer/block_record.h"

namespace pagemill::kv_transfer {

using Direction = kv_cache::KvTransfer::Direction;

int64_t DiskMedium::SlotFileBytes(size_t slot_bytes) {
  return static_cast<int64_t>(kRecordHeaderBytes + slot_bytes);
}

StatusOr<std::unique_ptr<DiskMedium>> DiskMedium::Create(const Options& options,
                                                         step::PageStore* pages,
                                                         std::shared_ptr<HostArena> arena) {
  PAGEMILL_ASSIGN_OR_RETURN(PosixFile file, PosixFile::CreateNew(options.path));
  PAGEMILL_RETURN_IF_ERROR(RemoveFile(options.path));
  PAGEMILL_RETURN_IF_ERROR(file.Reserve(options.num_slots * SlotFileBytes(options.slot_bytes)));
  return std::unique_ptr<DiskMedium>(
      new DiskMedium(options, pages, std::move(arena), std::move(file)));
}

DiskMedium::DiskMedium(const Options& options, step::PageStore* pages,
                       std::shared_ptr<HostArena> arena, PosixFile file)
    : options_(options), pages_(pages), arena_(std::move(arena)), file_(std::move(file)) {}

kv_cache::KvTransferResult DiskMedium::Run(const kv_cache::KvTransfer& transfer) {
  kv_cache::KvTransferResult result{transfer.id, 0, OkStatus()};
  for (size_t i = 0; i < transfer.blocks.size(); ++i) {
    result.status = Copy(transfer, i);
    if (!result.status.ok()) break;
    ++result.num_blocks_done;
  }
  return result;
}

Status DiskMedium::Copy(const kv_cache::KvTransfer& transfer, size_t i) {
  const kv_cache::BlockContent& block = transfer.blocks[i];
  const size_t size = pages_->page_bytes(block.group);
  const int64_t at = transfer.medium_slots[i] * SlotFileBytes(options_.slot_bytes);
  // Only this process uses the file, so it holds blocks of one model.
  const RecordName name{Digest128(), block.hash, block.group};
  record_.resize(kRecordHeaderBytes + size);
  const auto header = std::span(record_).first(kRecordHeaderBytes);
  const auto bytes = std::span(record_).subspan(kRecordHeaderBytes);
  switch (transfer.direction) {
    case Direction::kLoad:
      PAGEMILL_RETURN_IF_ERROR(file_.ReadAt(at, record_));
      PAGEMILL_RETURN_IF_ERROR(CheckRecord(name, header, bytes));
      return pages_->Write(block.group, block.block, bytes);
    case Direction::kStore:
      PAGEMILL_RETURN_IF_ERROR(pages_->Read(block.group, block.block, bytes));
      break;
    case Direction::kDemote: {
      if (arena_ == nullptr) return Internal("the disk tier demotes from no host tier");
      const std::span<std::byte> from = arena_->slot(transfer.source_slots[i], size);
      std::copy(from.begin(), from.end(), bytes.begin());
      break;
    }
    case Direction::kSend:
    case Direction::kProbe:
    case Direction::kForget:
      return Internal("the disk tier has no index to ask or to clear: it is the connector's");
  }
  EncodeRecordHeader(name, bytes, header);
  return file_.WriteAt(at, record_);
}

}  // namespace pagemill::kv_transfer
