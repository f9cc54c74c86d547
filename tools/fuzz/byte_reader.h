// File: tools/fuzz/byte_reader.h
// Turns a fuzzer's bytes into values. After the end of the bytes everything is 0, so every input is
// valid.
//
//   ByteReader in(data, size);
//   while (!in.empty()) switch (in.Below(5)) ...
#ifndef PAGEMILL_TOOLS_FUZZ_BYTE_READER_H_
#define PAGEMILL_TOOLS_FUZZ_BYTE_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace pagemill::fuzz {

class ByteReader {
 public:
  ByteReader(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  uint32_t Below(uint32_t bound) { return Byte() % bound; }  // bound <= 256
  uint64_t Bits(int num_bytes) {                             // little endian
    uint64_t bits = 0;
    for (int i = 0; i < num_bytes; ++i) bits |= uint64_t{Byte()} << (8 * i);
    return bits;
  }
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<uint32_t>(values.size()))];
  }
  std::string Bytes(size_t count) {
    const size_t taken = std::min(count, size_);
    std::string bytes(reinterpret_cast<const char*>(data_), taken);
    data_ += taken;
    size_ -= taken;
    return bytes;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace pagemill::fuzz

#endif  // PAGEMILL_TOOLS_FUZZ_BYTE_READER_H_
