// File: cc/kv_transfer/file_medium.h
// The worker's side of the file connector: blocks as files <folder>/<hash prefix>/<hash>-<group>,
// each a block record (block_record.h). A file is written under a temporary name and renamed, so
// that no reader sees a part of one. A file that is damaged, or of another model, fails its load
// and is removed.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<FileMedium> files,
//                       FileMedium::Create({.folder = "/var/cache/kv"}, pages));
//   worker.Add(kFileMedium, std::move(files));
//
// Two models that share a folder destroy each other's files: give each its own, named after its
// fingerprint. A kForget removes the folder's files for all processes that share it.
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
    std::string folder = {};  // made if it is missing
    // Files in the folder together, those found at the start and those written since; a store
    // beyond it fails with kResourceExhausted. Nothing is ever removed to make room.
    int64_t max_bytes = int64_t{16} << 30;
    Digest128 fingerprint = {};
  };

  // `pages` outlives the medium. kInvalidArgument if the folder cannot be made or read.
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
