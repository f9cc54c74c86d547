// File: cc/kv_transfer/disk_medium.h
// The disk tier's file: slots of one size, each a block record (block_record.h), so that a damaged
// slot fails to load and never yields wrong content.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<DiskMedium> disk,
//                       DiskMedium::Create({.path = path, .num_slots = 1000}, pages, arena));
//   worker.Add(kDiskMedium, std::move(disk));
//
// The file's space is reserved on creation and freed with the medium: the file is unlinked by then,
// so a process that dies leaves nothing behind. Its content does not outlive the process; that of
// file_medium.h does.
#ifndef PAGEMILL_CC_KV_TRANSFER_DISK_MEDIUM_H_
#define PAGEMILL_CC_KV_TRANSFER_DISK_MEDIUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/host_medium.h"
#include "cc/kv_transfer/posix_file.h"
#include "cc/kv_transfer/threaded_worker.h"
#include "cc/step/page_store.h"

namespace pagemill::kv_transfer {

class DiskMedium final : public TransferMedium {
 public:
  struct Options {
    std::string path = {};  // must not exist
    int64_t num_slots = 0;  // at least 1
    size_t slot_bytes = 0;  // the largest page size
  };
  // The bytes of the file that a slot takes.
  static int64_t SlotFileBytes(size_t slot_bytes);

  // `arena` is the host tier's, for demotions; null if there is none. `pages` must outlive the
  // medium. kResourceExhausted if the file system has no room, kInvalidArgument if the file cannot
  // be created.
  static StatusOr<std::unique_ptr<DiskMedium>> Create(const Options& options,
                                                      step::PageStore* pages,
                                                      std::shared_ptr<HostArena> arena);

  kv_cache::KvTransferResult Run(const kv_cache::KvTransfer& transfer) override;

 private:
  DiskMedium(const Options& options, step::PageStore* pages, std::shared_ptr<HostArena> arena,
             PosixFile file);
  Status Copy(const kv_cache::KvTransfer& transfer, size_t i);

  const Options options_;
  step::PageStore* const pages_;
  const std::shared_ptr<HostArena> arena_;
  PosixFile file_;
  std::vector<std::byte> record_;  // header and bytes of one block
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_DISK_MEDIUM_H_
