// File: cc/base/endian.h
// Reading and writing integers in a stated byte order, at any address, on any machine. Compilers
// turn each of these into one instruction.
#ifndef PAGEMILL_CC_BASE_ENDIAN_H_
#define PAGEMILL_CC_BASE_ENDIAN_H_

#include <bit>
#include <cstdint>
#include <cstring>

namespace pagemill {

constexpr uint32_t SwapBytes32(uint32_t v) { return __builtin_bswap32(v); }
constexpr uint64_t SwapBytes64(uint64_t v) { return __builtin_bswap64(v); }

inline uint32_t LoadLittle32(const void* from) {
  uint32_t v;
  std::memcpy(&v, from, sizeof(v));
  return std::endian::native == std::endian::little ? v : SwapBytes32(v);
}

inline uint64_t LoadLittle64(const void* from) {
  uint64_t v;
  std::memcpy(&v, from, sizeof(v));
  return std::endian::native == std::endian::little ? v : SwapBytes64(v);
}

inline uint32_t LoadBig32(const void* from) { return SwapBytes32(LoadLittle32(from)); }

inline void StoreLittle32(uint32_t v, void* to) {
  if constexpr (std::endian::native != std::endian::little) v = SwapBytes32(v);
  std::memcpy(to, &v, sizeof(v));
}

inline void StoreLittle64(uint64_t v, void* to) {
  if constexpr (std::endian::native != std::endian::little) v = SwapBytes64(v);
  std::memcpy(to, &v, sizeof(v));
}

inline void StoreBig32(uint32_t v, void* to) { StoreLittle32(SwapBytes32(v), to); }
inline void StoreBig64(uint64_t v, void* to) { StoreLittle64(SwapBytes64(v), to); }

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_ENDIAN_H_
