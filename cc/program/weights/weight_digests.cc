#include "cc/program/weights/weight_digests.h"

#include <cstddef>

namespace pagemill::program {

std::vector<Digest128> WeightDigests(const Program& program, std::span<const MappedFile> files,
                                     const DigestMemory& memory, device::ThreadPool& pool) {
  std::vector<Digest128> digests;
  size_t mapped = 0;
  for (const std::string& path : program.files()) {
    digests.push_back(path == kConstantsPath ? ParallelDigest(program.constants(), pool)
                                             : memory.Of(files[mapped++], pool));
  }
  return digests;
}

}  // namespace pagemill::program
