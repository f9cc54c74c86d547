#include "cc/kv_transfer/file_medium.h"

#include <stdlib.h>  // mkdtemp
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cc/kv_transfer/block_record.h"
#include "cc/kv_transfer/posix_file.h"

namespace pagemill::kv_transfer {
namespace {

namespace fs = std::filesystem;
using Direction = kv_cache::KvTransfer::Direction;

StatusOr<int64_t> CountBytes(const std::string& folder) {
  std::error_code error;
  int64_t total = 0;
  for (auto it = fs::recursive_directory_iterator(folder, error);
       !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code gone;  // ignored: another process may remove it meanwhile
    if (!it->is_regular_file(gone) || gone) continue;
    const auto size = it->file_size(gone);
    if (!gone) total += static_cast<int64_t>(size);
  }
  if (!error) return total;
  return InvalidArgument("cannot read the folder \"" + folder + "\": " + error.message());
}

// Folders that await removal are named "<folder>.forgotten.<six characters>".
constexpr char kForgotten[] = ".forgotten.";

// Removes the folders of processes that died before they removed all files.
void RemoveForgotten(const std::string& folder) {
  const fs::path path(folder);
  const std::string prefix = path.filename().string() + kForgotten;
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(path.parent_path(), error)) {
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  for (const fs::path& left : found) fs::remove_all(left, error);
}

}  // namespace

StatusOr<std::unique_ptr<FileMedium>> FileMedium::Create(const Options& options,
                                                         step::PageStore* pages) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) {
    return InvalidArgument("cannot make the folder \"" + options.folder + "\": " + error.message());
  }
  RemoveForgotten(options.folder);
  PAGEMILL_ASSIGN_OR_RETURN(const int64_t num_bytes, CountBytes(options.folder));
  return std::unique_ptr<FileMedium>(new FileMedium(options, pages, num_bytes));
}

std::string FileMedium::PathOf(const kv_cache::BlockContent& block) const {
  const std::string name = HexName(block.hash);
  return options_.folder + "/" + name.substr(0, 2) + "/" + name + "-" +
         std::to_string(block.group.value());
}

kv_cache::KvTransferResult FileMedium::Run(const kv_cache::KvTransfer& transfer) {
  kv_cache::KvTransferResult result{transfer.id, 0, OkStatus()};
  if (transfer.direction == Direction::kForget) result.status = RemoveAll();
  for (const kv_cache::BlockContent& block : transfer.blocks) {
    if (transfer.direction == Direction::kProbe) {
      if (::access(PathOf(block).c_str(), R_OK) != 0) return result;
    } else if (transfer.direction == Direction::kLoad) {
      result.status = Load(block);
    } else if (transfer.direction == Direction::kStore) {
      result.status = Store(block);
    } else {
      result.status = Internal("the file connector does not demote");
    }
    if (!result.status.ok()) return result;
    ++result.num_blocks_done;
  }
  return result;
}

// Takes effect at once for every process that looks for files: the folder is renamed before its
// files are removed.
Status FileMedium::RemoveAll() {
  std::string forgotten = options_.folder + kForgotten + "XXXXXX";
  if (::mkdtemp(forgotten.data()) == nullptr) {
    return DataLoss("cannot make \"" + forgotten + "\": " + std::strerror(errno));
  }
  std::error_code error, removed;
  fs::rename(options_.folder, forgotten, error);
  // Another process that shares the folder may just have renamed it.
  if (error == std::errc::no_such_file_or_directory) error.clear();
  fs::remove_all(forgotten, removed);
  if (!error) error = removed;
  if (!error) fs::create_directories(options_.folder, error);
  if (error) {
    return DataLoss("cannot remove the files of \"" + options_.folder + "\": " + error.message());
  }
  num_bytes_ = 0;
  return OkStatus();
}

Status FileMedium::Load(const kv_cache::BlockContent& block) {
  const std::string path = PathOf(block);
  PAGEMILL_ASSIGN_OR_RETURN(const PosixFile file, PosixFile::OpenToRead(path));
  PAGEMILL_ASSIGN_OR_RETURN(const int64_t size, file.size());
  record_.resize(kRecordHeaderBytes + pages_->page_bytes(block.group));
  const auto bytes = std::span<const std::byte>(record_).subspan(kRecordHeaderBytes);
  Status status = size == static_cast<int64_t>(record_.size())
                      ? file.ReadAt(0, record_)
                      : DataLoss("\"" + path + "\" has " + std::to_string(size) +
                                 " bytes, a block has " + std::to_string(record_.size()));
  if (status.ok()) {
    status = CheckRecord({options_.fingerprint, block.hash, block.group},
                         std::span(record_).first(kRecordHeaderBytes), bytes);
  }
  if (status.ok()) return pages_->Write(block.group, block.block, bytes);
  if (status.code() == StatusCode::kDataLoss && RemoveFile(path).ok()) num_bytes_ -= size;
  return status;
}

Status FileMedium::Store(const kv_cache::BlockContent& block) {
  const std::string path = PathOf(block);
  if (::access(path.c_str(), R_OK) == 0) return OkStatus();
  record_.resize(kRecordHeaderBytes + pages_->page_bytes(block.group));
  const auto size = static_cast<int64_t>(record_.size());
  if (num_bytes_ + size > options_.max_bytes) {
    return ResourceExhausted("\"" + options_.folder + "\" has " + std::to_string(num_bytes_) +
                             " bytes of KV blocks, its bound is " +
                             std::to_string(options_.max_bytes));
  }
  const auto bytes = std::span(record_).subspan(kRecordHeaderBytes);
  PAGEMILL_RETURN_IF_ERROR(pages_->Read(block.group, block.block, bytes));
  EncodeRecordHeader({options_.fingerprint, block.hash, block.group}, bytes,
                     std::span(record_).first(kRecordHeaderBytes));
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return DataLoss("cannot make the folder of \"" + path + "\": " + error.message());
  // Not synced: a file that a power failure truncates has no valid checksum.
  PAGEMILL_ASSIGN_OR_RETURN(PosixFile file, PosixFile::CreateTemporary(path));
  Status status = file.WriteAt(0, record_);
  if (status.ok()) status = RenameFile(file.path(), path);
  if (status.ok()) {
    num_bytes_ += size;
  } else {
    (void)RemoveFile(file.path());
  }
  return status;
}

}  // namespace pagemill::kv_transfer
