// File: cc/kv_transfer/file_medium.h
// The worker side of the file connector: blocks as files <folder>/<hash prefix>/<hash>-<group>,
// each a block record (block_record.h). A file is written under a temporary name and renamed, so no
// reader sees a partial one. Loading a file that is damaged or belongs to another model fails and
// removes it.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<FileMedium> files,
//                       FileMedium::Create({.folder = "/var/cache/kv"}, pages));
//   worker.Add(kFileMedium, std::move(files));
//
// Two models that share a folder destroy each other's files: use one folder per model, named after
// its fingerprint. A kForget removes the folder's files for all processes that share it.
#ifndef PAGEMILL_CC_KV_TRANSFER_FILE_MEDIUM_H_
#define PAGEMILL_CC_KV_TRANSFER_FILE_MEDIUM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/kv_cache/transfer.h"
#include "cc/kv_transfer/threaded_worker.h"
#include "cc/step/page_store.h"

namespace pagemill::kv_transfer {

class FileMedium final : public TransferMedium {
 public:
  struct Options {
    std::string folder = {};  // created if missing
    // Bound for all files in the folder, those found at the start and those written since; a store
    // that would exceed it fails with kResourceExhausted. Nothing is removed to make room.
    int64_t max_bytes = int64_t{16} << 30;
    Digest128 fingerprint = {};
  };

  // `pages` must outlive the medium. kInvalidArgument if the folder cannot be created or read.
  static StatusOr<std::unique_ptr<FileMedium>> Create(const Options& options,
                                                      step::PageStore* pages);

  kv_cache::KvTransferResult Run(const kv_cache::KvTransfer& transfer) override;

  std::string PathOf(const kv_cache::BlockContent& block) const;

 private:
  FileMedium(const Options& options, step::PageStore* pages, int64_t num_bytes)
      : options_(options), pages_(pages), num_bytes_(num_bytes) {}
  Status Load(const kv_cache::BlockContent& block);
  Status Store(const kv_cache::BlockContent& block);
  Status RemoveAll();

  const Options options_;
  step::PageStore* const pages_;
  int64_t num_bytes_;
  std::vector<std::byte> record_;  // header and bytes of one block
};

}  // namespace pagemill::kv_transfer

#endif  // PAGEMILL_CC_KV_TRANSFER_FILE_MEDIUM_H_
